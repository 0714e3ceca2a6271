"""Lets plain nbgrader commands and formgrader work from here; every setting stands in autograde/nbgrader_config.py."""

c = get_config()  # noqa: F821
load_subconfig("autograde/nbgrader_config.py")  # noqa: F821
