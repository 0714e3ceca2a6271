"""The words of track A, as tables: what each means, and which go together.

Classes of nouns, so that nobody drinks a bridge: P person, A animal, T thing, F furniture, V vehicle, L place, E food,
D drink; O opens and closes, I can be gone into, S can be sat on. Verbs name the classes of their subjects and objects,
adjectives those of their nouns.

Every English form stands for one thing only, which is what makes a sentence have one translation. So these are missing:
fish and sheep (one form for both numbers), read, put and cut (one form for both tenses), friend and teacher (a gender
that English does not tell), you and your. Missing too: agua and the like, feminine with "el".
"""

from dataclasses import dataclass

from utils.data import spanish

NOUNS = """
P boy niño m | girl niña f | man/men hombre m | woman/women mujer f | king rey m | queen reina f
P uncle tío m | aunt tía f
P brother hermano m | sister hermana f | grandfather abuelo m | grandmother abuela f | prince príncipe m
P princess princesa f | actor actor m | actress actriz f | waiter camarero m | witch bruja f
A cat gato m | dog perro m | horse caballo m | cow vaca f | bird pájaro m | mouse/mice ratón m | lion león m
A bear oso m
A wolf/wolves lobo m | duck pato m | frog rana f | rabbit conejo m | elephant elefante m | butterfly mariposa f
T lamp lámpara f | ball pelota f | pencil lápiz m | button botón m | hat sombrero m | shirt camisa f | mirror espejo m
T clock reloj m | key llave f | flower flor f
TO book libro m | letter carta f | box caja f | bottle botella f
FS table mesa f | chair silla f | bed cama f
FO door puerta f | window ventana f
V car coche m | train tren m | truck camión m | boat barco m | plane avión m
LI house casa f | garden jardín m | kitchen cocina f | school escuela f | park parque m | forest bosque m
LI city ciudad f | street calle f | room habitación f | market mercado m
L beach playa f
LS bridge puente m
E apple manzana f | lemon limón m | cake pastel m | egg huevo m | potato patata f
D coffee café m | beer cerveza f | juice zumo m
"""

ADJECTIVES = """
big grande PATFVLE | small pequeño PATFVLE | old viejo PATFVL | new nuevo TFVL | young joven PA | happy feliz PA
sad triste PA | tired cansado PA | strong fuerte PA | brave valiente PA | lazy perezoso PA | hardworking trabajador P
famous famoso PL | tall alto P | white blanco ATFVL | black negro ATFV | red rojo TFVE | blue azul TFV
green verde TFVE | yellow amarillo TFVE | grey gris ATFVL | brown marrón ATF | clean limpio TFVL | dirty sucio PATFVL
broken roto TF | heavy pesado TFV | expensive caro TFVED | cheap barato TFVED | cold frío LED | hot caliente ED
"""

BEFORE_THE_NOUN = "good buen bueno PATFVLED | bad mal malo PATFVLED"

# English: base, third person, past · Spanish: present and past, each singular and plural · subjects · +to: may go to L
INTRANSITIVE = """
sit sits sat | se sienta, se sientan, se sentó, se sentaron | PA
hide hides hid | se esconde, se esconden, se escondió, se escondieron | PA
bathe bathes bathed | se baña, se bañan, se bañó, se bañaron | PA
stay stays stayed | se queda, se quedan, se quedó, se quedaron | PA
leave leaves left | se va, se van, se fue, se fueron | PAV
stop stops stopped | se detiene, se detienen, se detuvo, se detuvieron | PAV
move moves moved | se mueve, se mueven, se movió, se movieron | PATV
complain complains complained | se queja, se quejan, se quejó, se quejaron | P
sleep sleeps slept | duerme, duermen, durmió, durmieron | PA
run runs ran | corre, corren, corrió, corrieron | PA +to
dance dances danced | baila, bailan, bailó, bailaron | P
walk walks walked | camina, caminan, caminó, caminaron | PA +to
return returns returned | regresa, regresan, regresó, regresaron | PAV +to
sing sings sang | canta, cantan, cantó, cantaron | P
jump jumps jumped | salta, saltan, saltó, saltaron | PA
cry cries cried | llora, lloran, lloró, lloraron | P
smile smiles smiled | sonríe, sonríen, sonrió, sonrieron | P
play plays played | juega, juegan, jugó, jugaron | PA
fall falls fell | cae, caen, cayó, cayeron | PATV
disappear disappears disappeared | desaparece, desaparecen, desapareció, desaparecieron | PATFVLE
"""

TRANSITIVE = """
see sees saw | ve, ven, vio, vieron | PA | PATFVLE
find finds found | encuentra, encuentran, encontró, encontraron | PA | PATFVLE
hear hears heard | oye, oyen, oyó, oyeron | PA | PAV
follow follows followed | sigue, siguen, siguió, siguieron | PA | PAV
protect protects protected | protege, protegen, protegió, protegieron | PA | PAL
love loves loved | ama, aman, amó, amaron | P | PAL
help helps helped | ayuda, ayudan, ayudó, ayudaron | P | PA
call calls called | llama, llaman, llamó, llamaron | P | PA
greet greets greeted | saluda, saludan, saludó, saludaron | P | P
hug hugs hugged | abraza, abrazan, abrazó, abrazaron | P | PA
visit visits visited | visita, visitan, visitó, visitaron | P | PL
paint paints painted | pinta, pintan, pintó, pintaron | P | PATFVL
buy buys bought | compra, compran, compró, compraron | P | TFVED
sell sells sold | vende, venden, vendió, vendieron | P | TFVED
bring brings brought | trae, traen, trajo, trajeron | P | TED
choose chooses chose | elige, eligen, eligió, eligieron | P | TFVED
steal steals stole | roba, roban, robó, robaron | P | TVE
lose loses lost | pierde, pierden, perdió, perdieron | P | T
forget forgets forgot | olvida, olvidan, olvidó, olvidaron | P | PTL
repair repairs repaired | repara, reparan, reparó, repararon | P | FV
wash washes washed | lava, lavan, lavó, lavaron | P | ATFV
break breaks broke | rompe, rompen, rompió, rompieron | PA | TF
push pushes pushed | empuja, empujan, empujó, empujaron | PA | PAFV
open opens opened | abre, abren, abrió, abrieron | P | O
close closes closed | cierra, cierran, cerró, cerraron | P | O
eat eats ate | come, comen, comió, comieron | PA | E
drink drinks drank | bebe, beben, bebió, bebieron | P | D
"""

MANNER = {"slowly": "lentamente", "quickly": "rápidamente", "quietly": "silenciosamente", "happily": "alegremente"}
PLACE = {"here": "aquí", "there": "allí"}
TIME = {"today": "hoy", "yesterday": "ayer", "now": "ahora"}
ONLY_PAST, ONLY_PRESENT = {"yesterday"}, {"now"}

# English: Spanish, and the classes of what may follow
PREPOSITIONS = {
    "in": ("en", "I"),
    "on": ("sobre", "S"),
    "under": ("debajo de", "S"),
    "behind": ("detrás de", "PAFV"),
    "near": ("cerca de", "PAFVL"),
    "with": ("con", "P"),
}
ONLY_WITHOUT_OBJECT = {"on", "under"}  # who sits on a bed; but nobody washes a car there
ONLY_OF_THE_LIVING = {"with"}
NO_MANNER = {"see", "find", "hear", "protect", "love", "lose", "forget", "fall", "disappear"}  # nobody hears quickly

# English singular and plural; Spanish masculine and feminine singular, then both plurals. "-": there is none
DETERMINERS = """
the the | el la los las
a - | un una - -
- some | - - unos unas
this these | este esta estos estas
that those | ese esa esos esas
my my | mi mi mis mis
"""


@dataclass(frozen=True)
class Noun:
    """classes: a string of letters, any of which another word may ask for. plural, spanish_plural: whole forms."""

    english: str
    plural: str
    spanish: str
    spanish_plural: str
    gender: str
    classes: str

    def is_any(self, classes):
        """Is it of one of these classes?"""
        return any([letter in self.classes for letter in classes])


@dataclass(frozen=True)
class Adjective:
    """short: the form before a masculine singular (buen), of those two that go before the noun; else None."""

    english: str
    spanish: str
    classes: str
    short: str | None = None


@dataclass(frozen=True)
class Verb:
    """english: base, third person, past. spanish: (present, past), each (singular, plural). objects: "" has none."""

    english: tuple
    spanish: tuple
    subjects: str
    objects: str = ""
    goes: bool = False


@dataclass(frozen=True)
class Determiner:
    """english: (singular, plural); spanish: (masculine, feminine) for each. None: no such form."""

    english: tuple
    spanish: tuple


def _rows(table):
    return [row.strip() for row in table.strip().splitlines()]


def _nouns():
    for row in _rows(NOUNS):
        classes, rest = row.split(" ", 1)
        for entry in rest.split("|"):
            english, word, gender = entry.split()
            single, _, plural = english.partition("/")
            yield Noun(single, plural or english_plural(single), word, spanish.plural(word), gender, classes)


def english_plural(word):
    """boxes, ladies, boys: the regular plural."""
    if word.endswith(("s", "x", "ch", "sh", "o")):
        return word + "es"
    return word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeiou" else word + "s"


def _adjectives():
    for row in _rows(ADJECTIVES):
        yield from (Adjective(*entry.split()) for entry in row.split("|"))


def _before():
    for entry in BEFORE_THE_NOUN.split("|"):
        english, short, full, classes = entry.split()
        yield Adjective(english, full, classes, short)


def _verbs(table):
    for row in _rows(table):
        english, forms, *who = (part.strip() for part in row.split("|"))
        now, now_many, then, then_many = forms.split(", ")
        subjects, _, to = who[0].partition(" +")
        yield Verb(tuple(english.split()), ((now, now_many), (then, then_many)), subjects, *who[1:], goes=bool(to))


def _determiners():
    for row in _rows(DETERMINERS):
        english, forms = ([None if part == "-" else part for part in half.split()] for half in row.split("|"))
        yield Determiner(tuple(english), (tuple(forms[:2]), tuple(forms[2:])))


nouns, adjectives, before_the_noun = tuple(_nouns()), tuple(_adjectives()), tuple(_before())
intransitive, transitive, determiners = tuple(_verbs(INTRANSITIVE)), tuple(_verbs(TRANSITIVE)), tuple(_determiners())
