// A template is text in which
//   $x  is a slot: a word of this story, a word of a list or another template (see `slots`)
//   @   is "a" or "an", as the next letter asks
//   ^   makes the next letter a capital
//   ~   is a double quote
// The first letter of a sentence is a capital without being asked.
//
// A word of a list has up to three forms: noun, plural; verb, third person, past. "walk" is
// regular (walks, walked), "carry/carries/carried" spells them. The past of each of
// handling_verbs is also its participle ("had carried"). Lists begin with their commonest words.
#include "data/corpus.h"

#include "tape/rng.h"

#include <string.h>

// The lists are packed by hand: a formatter would give many of them a line per word.
// clang-format off

static const char *const things[] = {
    "lantern", "box/boxes", "key", "basket", "letter", "boat", "lamp", "coat", "bell", "rope",
    "book", "cup", "apple", "ribbon", "candle", "map", "clock", "drum", "egg", "knife/knives",
    "wheel", "brush/brushes", "kettle", "umbrella", "ladder", "mirror", "hat", "loaf/loaves",
    "chair", "ring", "stone", "feather", "orange", "blanket", "needle", "whistle", "axe", "quilt",
    "oar", "jug", "glove", "anchor", "violin", "pencil", "bucket", "kite", "scarf/scarves", "urn",
};

static const char *const animals[] = {
    "dog", "cat", "horse", "fox/foxes", "bird", "goat", "owl", "mouse/mice", "hen", "duck",
    "wolf/wolves", "rabbit", "pony/ponies", "crow", "goose/geese", "ox/oxen", "bear", "otter",
    "donkey", "frog", "eagle", "lamb", "swan", "squirrel", "hedgehog", "ape", "zebra",
};

static const char *const workers[] = {
    "child/children", "baker", "farmer", "sailor", "woman/women", "man/men", "teacher", "miller",
    "neighbor", "doctor", "soldier", "fisherman/fishermen", "painter", "shepherd", "queen", "king",
    "weaver", "singer", "uncle", "aunt", "thief/thieves", "judge", "actor", "innkeeper", "gardener",
    "clockmaker", "juggler", "traveler",
};

static const char *const places[] = {
    "river", "house", "hill", "market", "garden", "forest", "village", "bridge", "harbor", "road",
    "mill", "lake", "field", "kitchen", "tower", "church/churches", "island", "meadow", "school",
    "valley", "barn", "orchard", "square", "inn", "castle", "well", "beach/beaches", "attic",
    "cave", "workshop", "alley", "palace",
};

static const char *const thing_adjectives[] = {
    "old", "small", "red", "heavy", "silver", "broken", "wooden", "empty", "blue", "golden", "new",
    "round", "rusty", "green", "warm", "yellow", "strange", "ugly", "copper", "dusty", "expensive",
    "sky-blue", "useless-looking", "shiny", "enormous", "narrow", "well-worn", "painted", "iron",
    "quite ordinary", "frozen", "ancient", "purple", "half-open", "elegant", "very small",
};

static const char *const being_adjectives[] = {
    "old", "young", "little", "tired", "brave", "kind", "clever", "hungry", "quiet", "angry",
    "happy", "lazy", "wise", "proud", "shy", "patient", "anxious", "gentle", "careful", "eager",
    "curious", "honorable", "sleepy", "odd", "jealous", "cheerful", "grey-haired", "impatient",
};

static const char *const place_adjectives[] = {
    "quiet", "old", "dark", "green", "empty", "great", "busy", "windy", "cold", "little", "sunny",
    "lonely", "icy", "forgotten", "crowded", "steep", "misty", "open", "abandoned", "snow-white",
};

static const char *const handling_verbs[] = {
    "find/finds/found", "carry/carries/carried", "keep/keeps/kept", "collect",
    "bring/brings/brought", "hold/holds/held", "buy/buys/bought", "lose/loses/lost", "paint",
    "sell/sells/sold", "mend", "drop/drops/dropped", "watch/watches/watched", "make/makes/made",
    "clean", "follow", "lift", "repair", "borrow", "admire/admires/admired",
    "examine/examines/examined", "catch/catches/caught", "bury/buries/buried", "leave/leaves/left",
    "polish/polishes/polished", "count", "weigh", "describe/describes/described",
    "touch/touches/touched", "exchange/exchanges/exchanged", "recognize/recognizes/recognized",
    "measure/measures/measured",
};

static const char *const moving_verbs[] = {
    "walk", "run/runs/ran", "hurry/hurries/hurried", "go/goes/went", "climb", "wander",
    "dance/dances/danced", "jump", "travel", "march/marches/marched", "swim/swims/swam", "limp",
    "creep/creeps/crept", "ride/rides/rode", "sail", "return", "fly/flies/flew", "gallop",
};

static const char *const feeling_verbs[] = {
    "smile/smiles/smiled", "laugh", "wait", "sing/sings/sang", "sigh", "nod/nods/nodded",
    "sleep/sleeps/slept", "listen", "shiver", "weep/weeps/wept", "frown",
    "whistle/whistles/whistled", "blush/blushes/blushed", "wonder", "hesitate/hesitates/hesitated",
    "yawn",
};

static const char *const adverbs[] = {
    "slowly", "quietly", "again", "quickly", "softly", "gladly", "at once", "carefully", "sadly",
    "calmly", "happily", "for a while", "politely", "bravely", "twice", "in silence", "loudly",
    "without a word", "gently", "anxiously", "eagerly", "almost every day", "as usual", "lazily",
};

static const char *const times[] = {
    "in the morning", "at night", "after supper", "before the storm", "in the evening", "at noon",
    "after the rain", "in winter", "on Sunday", "at midnight", "before breakfast", "in summer",
    "on the first day", "a week later", "after the harvest", "in the autumn", "before dawn",
    "on market day", "just before Easter", "one Friday",
};

static const char *const prepositions[] = {
    "near", "behind", "across", "under", "past", "around", "beside", "beyond", "along", "below",
    "outside", "opposite",
};

static const char *const numbers[] = {
    "two", "three", "four", "seven", "many", "five", "a dozen", "six", "eight", "twenty", "nine",
};

static const char *const interjections[] = {
    "oh", "well", "look", "yes", "no", "listen", "wait", "indeed", "hush", "alas", "excuse me",
};

static const char *const one_being[] = {
    "the $a", "the $w", "the $k $w", "the $k $a", "@ $k $w", "@ $w", "@ $a", "the $Y", "$F",
};

static const char *const one_thing[] = {
    "the $t", "the $O", "@ $j $t", "@ $t", "the $j $t", "$s $t", "the $j $O", "$s $j $t",
};

static const char *const some_things[] = {
    "the $T", "$n $T", "$n $j $T", "$s $T", "some $j $T", "a few $T", "the $j $T",
};

static const char *const some_beings[] = {
    "the $W", "the $A", "the $k $W", "$n $A", "the $k $A", "$n $k $W",
};

static const char *const where[] = {
    "$r the $l", "$r the $Z", "$r @ $q $l", "$r the $q $l", "not far from the $l",
};

static const char *const hero_again[] = {
    "$H", "$h", "$h",
};

// Present tense, without a first capital or a last stop: what people say.
static const char *const statements[] = {
    "the $a $x $2 $d",
    "$4 always $v $3",
    "@ $k $w never $x $2",
    "the $O is $5",
    "I saw @ $j $t $5",
    "you must not $v the $O",
    "we can $i $5 $d",
    "there are $n $A $5",
    "there is @ $k $a $5",
    "my $t isn't $j",
    "the $W $i $5 $d",
    "the $w $y $5 $d",
    "nobody $x @ $t $5",
    "I'll $v the $t and you'll $v the $T",
    "these $T are $j and that $t is $j",
    "the $A $b $u when the $w $c",
};

static const char *const questions[] = {
    "where is the $O", "who $x $3 $d", "does the $w $v $2", "do the $W $v $3",
    "why are the $T so $j", "can you see the $Y $5", "have you $V my $t", "shall we $i $5",
    "isn't that @ $j $t", "how many $T did you $v", "what does @ $w need", "will you $i $5 with me",
};

static const char *const sentences[] = {
    "$6 $V $2 $5.",
    "$6 $V $2 and $V $3.",
    "$5, $1 $V $2.",
    "$d, $6 $I $5.",
    "$1 $I $5, and $4 $I after $m.",
    "$6 $B $u, for $2 was $j.",
    "the $t was $j, but the $T were $j.",
    "there was @ $t $5, and there were $n $T $5.",
    "when $1 $I $5, $6 $B and $V $2.",
    "$4 $B $u; $1 only $B.",
    "$6 didn't $v $2, because $1 had $V it $d.",
    "neither $H nor $1 could $v $2.",
    "$6 wanted to $v the $O, yet $h could not $i $5.",
    "all the $W knew that $F $V $3.",
    "the $l was $q, and the $Z was $q.",
    "$6 gave $F $2, and $f $B.",
    "$u, $H $I $5.",
    "nobody had $V $2 $d, not even $1.",
    "$5 $h found some $T: $n $j ones and @ $j one.",
    "$6 packed @ $t, @ $t and $n $T.",
    "$1 and $1 $I $5.",
    "$F was @ $k $w, and $f $V $3.",
    "how $k $1 was!",
    "was it really @ $j $t?",
    "$4 $V $3 $5 and $B $u.",
    "who had $V the $O?",
    "if $1 $V it, $6 would $v $2.",
    "the $w's $t was $j.",
    "$6 $B.",
};

static const char *const speeches[] = {
    "~^$8?~ asked $S.",
    "~^$7,~ said $S.",
    "~^$7!~ cried $S.",
    "~^$o, $R,~ said $S. ~^$7.~",
    "~^$7,~ said $S $u, ~and $7.~",
    "~^$7,~ $S answered. ~^$8?~",
    "$S $B. ~^$7, $R.~",
    "$S only $B $u and said, ~^$7.~",
    "~^I don't know,~ said $S, ~but $7.~",
    "~^$8?~ asked $S, and $R $B.",
};

static const char *const titles[] = {
    "$H and the $O",
    "the $Y of the $Z",
    "the $j $O",
    "$H, $F and the $k $Y",
};

static const char *const openings[] = {
    "long ago, $5, there lived @ $k $w whose name was $H.",
    "$H was @ $k $w who lived near the $Z with @ $k $a.",
    "$d, $H $V @ $j $O $5.",
    "nobody near the $Z had seen @ $O like the one that $H $V.",
    "once there was @ $Y that $V @ $O, and only $H knew it.",
};

static const char *const closings[] = {
    "and so $H $V the $O, and $F $B $u.",
    "the $O stayed near the $Z, and nobody $V it again.",
    "$H and $F $I home together, and the $Y $I after them.",
    "$d, $H $V the $O for the last time.",
};

enum { TEMPLATE = -1 };

struct slot {
    const char *const *choices;
    int count;
    int form; // of the word, or TEMPLATE
};

#define WORD(list, form) {list, COUNT_OF(list), form}
#define RULE(list) {list, COUNT_OF(list), TEMPLATE}

static const struct slot slots[128] = {
    ['t'] = WORD(things, 0),              ['T'] = WORD(things, 1),
    ['a'] = WORD(animals, 0),             ['A'] = WORD(animals, 1),
    ['w'] = WORD(workers, 0),             ['W'] = WORD(workers, 1),
    ['l'] = WORD(places, 0),              ['j'] = WORD(thing_adjectives, 0),
    ['k'] = WORD(being_adjectives, 0),    ['q'] = WORD(place_adjectives, 0),
    ['v'] = WORD(handling_verbs, 0),      ['x'] = WORD(handling_verbs, 1),
    ['V'] = WORD(handling_verbs, 2),      ['i'] = WORD(moving_verbs, 0),
    ['y'] = WORD(moving_verbs, 1),        ['I'] = WORD(moving_verbs, 2),
    ['b'] = WORD(feeling_verbs, 0),       ['c'] = WORD(feeling_verbs, 1),
    ['B'] = WORD(feeling_verbs, 2),       ['u'] = WORD(adverbs, 0),
    ['d'] = WORD(times, 0),               ['r'] = WORD(prepositions, 0),
    ['n'] = WORD(numbers, 0),             ['o'] = WORD(interjections, 0),
    ['1'] = RULE(one_being),              ['2'] = RULE(one_thing),
    ['3'] = RULE(some_things),            ['4'] = RULE(some_beings),
    ['5'] = RULE(where),                  ['6'] = RULE(hero_again),
    ['7'] = RULE(statements),             ['8'] = RULE(questions),
};

struct person {
    const char *name;
    const char *he, *him, *his;
};

#define MAN(name) {name, "he", "him", "his"}
#define WOMAN(name) {name, "she", "her", "her"}

static const struct person people[] = {
    WOMAN("Clara"), MAN("Peter"), WOMAN("Alice"), MAN("Hugo"), WOMAN("Greta"),
    MAN("Felix"), WOMAN("Emma"), MAN("Bruno"), WOMAN("Nora"), MAN("Oscar"),
    WOMAN("Iris"), MAN("Jonas"), WOMAN("Dora"), MAN("Edgar"), WOMAN("Zoe"),
    MAN("Victor"), WOMAN("Ruth"), MAN("Leo"), WOMAN("Kate"), MAN("Walter"),
    WOMAN("Flora"), MAN("Quentin"), WOMAN("Yasmin"), MAN("Matthew"), WOMAN("Ursula"),
};
// clang-format on

struct writer {
    char *out;
    int64_t at; // bytes written, at most `bytes`: what does not fit is dropped
    int64_t bytes;
    uint64_t key;
    uint64_t draws; // how many random choices so far
    bool capital;   // the next letter is a capital
    bool article;   // "a" is written, its "n" and its space depend on the next letter
    int speaker;    // 0 the hero, 1 the friend
    const struct person *person[2];
    const char *thing, *place, *animal; // of this story
};

static int64_t draw(struct writer *w, int64_t bound)
{
    return rng_below(w->key, w->draws++, bound);
}

// Early entries come more often, as words do: entry i of n has chance about log(n / i) / n.
static int64_t draw_early(struct writer *w, int64_t bound)
{
    return draw(w, draw(w, bound) + 1);
}

static void put_raw(struct writer *w, char c)
{
    if (w->at < w->bytes)
        w->out[w->at++] = c;
}

static void put(struct writer *w, char c)
{
    if (w->article) {
        if (c == ' ')
            return;
        if (strchr("aeiou", c) != NULL)
            put_raw(w, 'n');
        put_raw(w, ' ');
        w->article = false;
    }
    bool letter = c >= 'a' && c <= 'z';
    put_raw(w, letter && w->capital ? (char)(c - 'a' + 'A') : c);
    if (c != '"')
        w->capital = false;
}

static void put_text(struct writer *w, const char *text)
{
    for (; *text != '\0'; text++)
        put(w, *text);
}

static void put_word(struct writer *w, const char *word, int form)
{
    static const char *const regular_endings[] = {"", "s", "ed"};
    bool regular = strchr(word, '/') == NULL;
    for (int skip = regular ? 0 : form; skip > 0; skip--)
        word = strchr(word, '/') + 1;
    for (; *word != '\0' && *word != '/'; word++)
        put(w, *word);
    if (regular)
        put_text(w, regular_endings[form]);
}

// The word that this story has for the slot, or NULL if the slot is not one of the story.
static const char *story_word(const struct writer *w, char slot)
{
    switch (slot) {
    case 'H': return w->person[0]->name;
    case 'h': return w->person[0]->he;
    case 'm': return w->person[0]->him;
    case 's': return w->person[0]->his;
    case 'F': return w->person[1]->name;
    case 'f': return w->person[1]->he;
    case 'S': return w->person[w->speaker]->name;
    case 'R': return w->person[!w->speaker]->name;
    case 'O': return w->thing;
    case 'Z': return w->place;
    case 'Y': return w->animal;
    default: return NULL;
    }
}

static void put_template(struct writer *w, const char *text);

static void put_slot(struct writer *w, char name)
{
    const char *word = story_word(w, name);
    if (word != NULL) {
        put_word(w, word, 0);
        return;
    }
    const struct slot *s = &slots[(int)name];
    if (s->form == TEMPLATE)
        put_template(w, s->choices[draw(w, s->count)]);
    else
        put_word(w, s->choices[draw_early(w, s->count)], s->form);
}

// Calls itself through put_slot, at most three deep: the rules have no cycle.
static void put_template(struct writer *w, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '$': put_slot(w, *++text); break;
        case '@':
            put(w, 'a');
            w->article = true;
            break;
        case '^': w->capital = true; break;
        case '~': put(w, '"'); break;
        default: put(w, *text);
        }
    }
}

static void put_sentence(struct writer *w, const char *const *choices, int count)
{
    w->capital = true;
    put_template(w, choices[draw(w, count)]);
    w->capital = false;
}

static void put_paragraph(struct writer *w)
{
    int64_t count = 2 + draw(w, 4);
    for (int64_t i = 0; i < count; i++) {
        put_sentence(w, sentences, COUNT_OF(sentences));
        put_text(w, i + 1 < count ? " " : "\n\n");
    }
}

static void put_dialogue(struct writer *w)
{
    int64_t count = 2 + draw(w, 4);
    for (int64_t i = 0; i < count; i++) {
        w->speaker = (int)(i % 2);
        put_sentence(w, speeches, COUNT_OF(speeches));
        put_text(w, i + 1 < count ? "\n" : "\n\n");
    }
}

static void choose_story(struct writer *w)
{
    int64_t hero = draw(w, COUNT_OF(people));
    int64_t other = (hero + 1 + draw(w, COUNT_OF(people) - 1)) % COUNT_OF(people);
    w->person[0] = &people[hero];
    w->person[1] = &people[other];
    w->thing = things[draw(w, COUNT_OF(things))];
    w->place = places[draw(w, COUNT_OF(places))];
    w->animal = animals[draw(w, COUNT_OF(animals))];
}

static void put_story(struct writer *w)
{
    choose_story(w);
    put_sentence(w, titles, COUNT_OF(titles));
    put_text(w, "\n\n");
    put_sentence(w, openings, COUNT_OF(openings));
    put_text(w, " ");
    for (int64_t rest = 1 + draw(w, 3); rest > 0; rest--) {
        put_paragraph(w);
        put_dialogue(w);
    }
    put_sentence(w, closings, COUNT_OF(closings));
    put_text(w, "\n\n\n");
}

int64_t corpus_write(uint64_t seed, char *out, int64_t bytes)
{
    CHECK(bytes >= 0);
    struct writer w = {.out = out, .bytes = bytes, .key = rng_key(seed, RNG_CORPUS)};
    while (w.at < bytes)
        put_story(&w);
    return bytes;
}
