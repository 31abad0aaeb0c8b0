// test_data.c - data is a pure function of its arguments: the same text, tokens and batches every
// time, no window past its split, every validation target counted once, and what cannot be done is
// refused in one line that names the numbers.
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L // mkstemp
#endif
#include "data/batch.h"
#include "data/corpus.h"
#include "data/text_file.h"
#include "data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h> // last: its macro fail() would hide the function of tape/base.h

enum { CORPUS_BYTES = 100000, TOKENS_MAX = 4096 };

// A message is one line, and says what a reader needs to go on.
static void expect_error(const struct error *e, const char *const *parts, int count)
{
    assert_null(strchr(e->text, '\n'));
    assert_non_null(strstr(e->text, "try "));
    for (int i = 0; i < count; i++)
        if (strstr(e->text, parts[i]) == NULL)
            fail_msg("no '%s' in: %s", parts[i], e->text);
}

#define EXPECT_ERROR(e, ...)                                                                       \
    expect_error(e, (const char *const[]){__VA_ARGS__}, COUNT_OF(((const char *[]){__VA_ARGS__})))

// ---- corpus ----

static char *corpus(uint64_t seed, int64_t bytes)
{
    char *text = malloc((size_t)bytes + 2);
    assert_non_null(text);
    text[bytes] = '#';
    text[bytes + 1] = '\0';
    assert_int_equal(corpus_write(seed, text, bytes), bytes);
    assert_int_equal(text[bytes], '#');
    text[bytes] = '\0';
    return text;
}

static void corpus_is_pure_and_prefix_stable(void **state)
{
    (void)state;
    char *whole = corpus(7, CORPUS_BYTES);
    assert_int_equal(strlen(whole), CORPUS_BYTES);
    static const int64_t lengths[] = {0, 1, 2, 63, 64, 65, 999, 30011, CORPUS_BYTES};
    for (int i = 0; i < COUNT_OF(lengths); i++) {
        char *part = corpus(7, lengths[i]);
        assert_memory_equal(part, whole, lengths[i]);
        free(part);
    }
    char *other = corpus(8, CORPUS_BYTES);
    assert_memory_not_equal(other, whole, 1000);
    free(other);
    free(whole);
}

static void corpus_has_fifty_to_sixty_five_characters(void **state)
{
    (void)state;
    char *text = corpus(CORPUS_SEED, CORPUS_DEFAULT_BYTES);
    int64_t seen[256] = {0}, distinct = 0;
    for (int64_t i = 0; i < CORPUS_DEFAULT_BYTES; i++)
        distinct += seen[(unsigned char)text[i]]++ == 0;
    for (int c = 0; c < 256; c++)
        if (seen[c] > 0 && c != '\n' && (c < ' ' || c > '~'))
            fail_msg("byte 0x%02x is not printable ASCII", (unsigned)c);
    for (const char *c = "@$^~/#"; *c != '\0'; c++)
        assert_int_equal(seen[(unsigned char)*c], 0);
    assert_in_range(distinct, 50, 65);
    free(text);
}

// "a" stands before a consonant and "an" before a vowel, and a sentence begins with a capital.
static void corpus_agrees_in_articles_and_capitals(void **state)
{
    (void)state;
    char *text = corpus(3, CORPUS_BYTES);
    int64_t articles[2] = {0};
    for (const char *s = text + 3; s[3] != '\0'; s++) {
        bool start = s[-1] == ' ' && (s[0] == 'a' || s[0] == 'A');
        bool an = start && s[1] == 'n' && s[2] == ' ';
        if (an || (start && s[1] == ' ')) {
            articles[an]++;
            if (an != (strchr("aeiou", s[an ? 3 : 2]) != NULL))
                fail_msg("article: '%.20s'", s);
        }
        if ((s[-1] == ' ' || s[-1] == '\n') && strchr(".!?\n", s[-2]) != NULL)
            if (s[0] >= 'a' && s[0] <= 'z')
                fail_msg("a sentence begins small: '%.20s'", s);
    }
    assert_true(articles[0] > 100 && articles[1] > 100);
    free(text);
}

// ---- tokenizer ----

static void build(struct tokenizer *k, enum tokenizer_kind kind, const char *text)
{
    struct error e = {""};
    if (!tokenizer_build(k, kind, text, (int64_t)strlen(text), &e))
        fail_msg("%s", e.text);
}

static void expect_round_trip(const struct tokenizer *k, const char *text, int64_t bytes)
{
    struct error e;
    int64_t count, at = 0;
    assert_true(tokenizer_count(k, text, bytes, &count, &e));
    int32_t *ids = malloc((size_t)count * sizeof(*ids) + 1);
    assert_true(tokenizer_encode(k, text, bytes, ids, &e));
    for (int64_t i = 0; i < count; i++) {
        char out[TOKENIZER_TOKEN_BYTES];
        assert_in_range(ids[i], 0, k->vocab - 1);
        int64_t length = tokenizer_decode(k, ids[i], out);
        assert_true(length <= bytes - at);
        assert_memory_equal(out, text + at, length);
        at += length;
    }
    assert_int_equal(at, bytes);
    free(ids);
}

static const char many_scripts[] =
    "na\xc3\xafve caf\xc3\xa9, \xe2\x82\xac 5; \xe6\x97\xa5\xe6\x9c\xac; \xf0\x9f\x90\xa2\n"
    "\"quoted\" \\ 100% \x01\x7f \xc2\x80 \xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf";

static void tokenizer_round_trips(void **state)
{
    (void)state;
    struct tokenizer k;
    build(&k, TOKENIZER_CHAR, "hello world");
    assert_int_equal(k.vocab, 8);
    for (int32_t i = 0; i < 8; i++)
        assert_int_equal(k.code_point[i], " dehlorw"[i]);
    expect_round_trip(&k, "hello world", 11);
    expect_round_trip(&k, "", 0);
    build(&k, TOKENIZER_CHAR, many_scripts);
    expect_round_trip(&k, many_scripts, sizeof(many_scripts) - 1);
    build(&k, TOKENIZER_BYTE, "");
    assert_int_equal(k.vocab, 256);
    expect_round_trip(&k, many_scripts, sizeof(many_scripts)); // with its zero byte
}

static void tokenizer_counts_characters_not_bytes(void **state)
{
    (void)state;
    struct tokenizer k;
    struct error e;
    int64_t count;
    build(&k, TOKENIZER_CHAR, "a\xe2\x82\xac");
    assert_true(tokenizer_count(&k,
                                "a\xe2\x82\xac"
                                "a",
                                5, &count, &e));
    assert_int_equal(count, 3);
}

static void expect_binary(const char *bytes, int64_t count, const char *offset)
{
    static struct tokenizer k;
    struct error e = {""};
    if (tokenizer_build(&k, TOKENIZER_CHAR, bytes, count, &e))
        fail_msg("binary text accepted, bad %s", offset);
    EXPECT_ERROR(&e, offset, "--tokenizer byte", "UTF-8");
}

static void tokenizer_refuses_binary(void **state)
{
    (void)state;
    expect_binary("ab\xff", 3, "0xff at offset 2");
    expect_binary("a\x80", 2, "0x80 at offset 1");   // no lead
    expect_binary("abc\xc3", 4, "0xc3 at offset 3"); // cut off
    expect_binary("\xe2\x82"
                  "abc",
                  5, "0xe2 at offset 0");                     // cut short
    expect_binary("abc\xc3\xa9", 4, "0xc3 at offset 3");      // cut by the count
    expect_binary("\xc3\xc3", 2, "0xc3 at offset 0");         // a lead in its place
    expect_binary("\xc0\xaf", 2, "0xc0 at offset 0");         // overlong
    expect_binary("\xe0\x80\x80", 3, "0xe0 at offset 0");     // overlong
    expect_binary("\xed\xa0\x80", 3, "0xed at offset 0");     // a surrogate
    expect_binary("\xf4\x90\x80\x80", 4, "0xf4 at offset 0"); // above U+10FFFF
    expect_binary("h\0i\0", 4, "0x00 at offset 1");           // UTF-16
    struct tokenizer k;
    struct error e;
    build(&k, TOKENIZER_CHAR, "ab");
    int32_t ids[2];
    assert_false(tokenizer_encode(&k, "a\xff", 2, ids, &e));
    EXPECT_ERROR(&e, "0xff at offset 1", "--tokenizer byte");
}

static void tokenizer_names_unknown_characters(void **state)
{
    (void)state;
    struct tokenizer k;
    struct error e;
    int32_t ids[8];
    int64_t count;
    build(&k, TOKENIZER_CHAR, "abc");
    assert_false(tokenizer_encode(&k, "ab\xc3\xa9", 4, ids, &e));
    EXPECT_ERROR(&e, "'\xc3\xa9' (U+00E9)", "offset 2", "3 characters");
    assert_false(tokenizer_count(&k, "a\nb", 3, &count, &e));
    EXPECT_ERROR(&e, "character U+000A at offset 1");
    assert_false(tokenizer_count(&k, "d", 1, &count, &e));
    EXPECT_ERROR(&e, "'d' (U+0064) at offset 0");
}

static void tokenizer_vocabulary_has_a_limit(void **state)
{
    (void)state;
    static char text[2 * TOKENIZER_TEXT_BYTES];
    int64_t bytes = 0;
    for (int32_t c = 0x1000; c < 0x1000 + TOKENIZER_VOCAB_MAX + 1; c++) {
        text[bytes++] = (char)(0xe0 | c >> 12);
        text[bytes++] = (char)(0x80 | (c >> 6 & 0x3f));
        text[bytes++] = (char)(0x80 | (c & 0x3f));
    }
    struct tokenizer k;
    struct error e = {""};
    assert_true(tokenizer_build(&k, TOKENIZER_CHAR, text, bytes - 3, &e));
    assert_int_equal(k.vocab, TOKENIZER_VOCAB_MAX);
    expect_round_trip(&k, text, bytes - 3);
    assert_false(tokenizer_build(&k, TOKENIZER_CHAR, text, bytes, &e));
    EXPECT_ERROR(&e, "4096", "--tokenizer byte");
    memmove(text + 5, text, (size_t)bytes);
    memcpy(text, "char:", 5);
    assert_false(tokenizer_from_text(&k, text, &e));
    EXPECT_ERROR(&e, "4096");
}

static void expect_text(const struct tokenizer *k, const char *expected)
{
    char text[TOKENIZER_TEXT_BYTES];
    struct tokenizer back;
    struct error e;
    int64_t length = tokenizer_to_text(k, text);
    assert_int_equal(length, strlen(text));
    if (expected != NULL)
        assert_string_equal(text, expected);
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == '"' || *c == '\\')
            fail_msg("0x%02x is not safe inside a JSON string", (unsigned)*c);
    if (!tokenizer_from_text(&back, text, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(&back, k, sizeof(back));
}

static void tokenizer_text_round_trips(void **state)
{
    (void)state;
    struct tokenizer k;
    build(&k, TOKENIZER_BYTE, "");
    expect_text(&k, "byte");
    build(&k, TOKENIZER_CHAR, "b\n\"\\%a\xc3\xa9\x7f:");
    expect_text(&k, "char:%0A%22%25:%5Cab%7F\xc3\xa9");
    build(&k, TOKENIZER_CHAR, many_scripts);
    expect_text(&k, NULL);
}

static void tokenizer_text_is_checked(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "expected 'byte'"},           {"bytes", "'bytes'"},     {"char:", "at least one"},
        {"char:ba", "U+0061 at offset 1"}, {"char:aa", "ascending"}, {"char:a\xff", "offset 1"},
        {"char:%0", "offset 0"},           {"char:%0g", "offset 0"}, {"char:%00", "offset 0"},
        {"char:%41", "offset 0"},
    };
    static struct tokenizer k;
    for (int i = 0; i < COUNT_OF(bad); i++) {
        struct error e = {""};
        if (tokenizer_from_text(&k, bad[i][0], &e))
            fail_msg("'%s' accepted", bad[i][0]);
        EXPECT_ERROR(&e, bad[i][1]);
    }
}

// ---- dataset ----

static char path[64];

static const char *write_file(const char *bytes, int64_t count)
{
    strcpy(path, "/tmp/memtape_test_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, (size_t)count), count);
    close(fd);
    return path;
}

static void open_text(struct dataset *d, const char *text, enum tokenizer_kind kind)
{
    struct error e = {""};
    if (!dataset_open(d, write_file(text, (int64_t)strlen(text)), kind, NULL, &e))
        fail_msg("%s", e.text);
    unlink(path);
}

static void dataset_holds_the_text(void **state)
{
    (void)state;
    struct dataset d;
    int32_t ids[sizeof(many_scripts)];
    open_text(&d, "cabbage", TOKENIZER_CHAR);
    assert_int_equal(d.count, 7);
    assert_int_equal(d.train_count, 6); // int(7 * 0.9)
    assert_int_equal(d.token_bytes, 1);
    dataset_read(&d, 0, 7, ids);
    for (int i = 0; i < 7; i++)
        assert_int_equal(ids[i], "2011043"[i] - '0'); // a b c e g
    dataset_close(&d);
    dataset_close(&d);
    assert_null(d.ids);
    open_text(&d, many_scripts, TOKENIZER_CHAR); // shrinks in place
    int32_t expected[sizeof(many_scripts)];
    struct error e;
    assert_true(
        tokenizer_encode(&d.tokenizer, many_scripts, sizeof(many_scripts) - 1, expected, &e));
    dataset_read(&d, 0, d.count, ids);
    assert_memory_equal(ids, expected, (size_t)d.count * sizeof(ids[0]));
    dataset_close(&d);
}

static void dataset_uses_two_bytes_above_256_characters(void **state)
{
    (void)state;
    static char text[2 * 300 + 1];
    for (int i = 0; i < 300; i++) {
        text[2 * i] = (char)(0xc0 | (i + 0x80) >> 6);
        text[2 * i + 1] = (char)(0x80 | ((i + 0x80) & 0x3f));
    }
    struct dataset d;
    open_text(&d, text, TOKENIZER_CHAR);
    assert_int_equal(d.token_bytes, 2);
    assert_int_equal(d.count, 300);
    int32_t ids[300];
    dataset_read(&d, 0, 300, ids);
    for (int i = 0; i < 300; i++)
        assert_int_equal(ids[i], i);
    dataset_read(&d, 299, 1, ids);
    assert_int_equal(ids[0], 299);
    dataset_close(&d);
}

static void dataset_builtin_is_the_corpus(void **state)
{
    (void)state;
    struct dataset d;
    struct error e = {""};
    assert_true(dataset_open(&d, DATASET_BUILTIN, TOKENIZER_BYTE, NULL, &e));
    assert_int_equal(d.count, CORPUS_DEFAULT_BYTES);
    assert_int_equal(d.train_count, 943718);
    char *text = corpus(CORPUS_SEED, CORPUS_DEFAULT_BYTES);
    assert_memory_equal(d.ids, text, CORPUS_DEFAULT_BYTES);
    free(text);
    dataset_close(&d);
}

static void dataset_obeys_a_fixed_tokenizer(void **state)
{
    (void)state;
    struct tokenizer k;
    struct dataset d;
    struct error e = {""};
    build(&k, TOKENIZER_CHAR, "abcdef");
    assert_true(dataset_open(&d, write_file("fed", 3), TOKENIZER_BYTE, &k, &e));
    int32_t ids[3];
    dataset_read(&d, 0, 3, ids);
    assert_int_equal(ids[0], 5);
    assert_int_equal(ids[2], 3);
    dataset_close(&d);
    unlink(path);
    assert_false(dataset_open(&d, write_file("fez", 3), TOKENIZER_CHAR, &k, &e));
    unlink(path);
    EXPECT_ERROR(&e, path, "'z' (U+007A) at offset 2");
    assert_null(d.ids);
}

static void expect_refused(const char *file, const char *why)
{
    struct dataset d;
    struct error e = {""};
    if (dataset_open(&d, file, TOKENIZER_CHAR, NULL, &e))
        fail_msg("'%s' accepted", file);
    EXPECT_ERROR(&e, file, why);
    assert_null(d.ids);
    assert_int_equal(d.count, 0);
}

static void dataset_refuses_what_is_no_text(void **state)
{
    (void)state;
    expect_refused("no/such/file.txt", "No such file");
    expect_refused(".", "directory");
    expect_refused(write_file("", 0), "empty");
    unlink(path);
    expect_refused(write_file("text\xfe\xff", 6), "offset 4");
    unlink(path);
    write_file("secret", 6);
    assert_int_equal(chmod(path, 0), 0);
    FILE *readable = fopen(path, "rb"); // root reads what it likes
    if (readable == NULL)
        expect_refused(path, "denied");
    else
        fclose(readable);
    unlink(path);
}

// ---- batches ----

// Token i is i, so that a token says where it was read.
static struct dataset counting(int64_t train, int64_t validation)
{
    static uint16_t ids[TOKENS_MAX];
    for (int i = 0; i < TOKENS_MAX; i++)
        ids[i] = (uint16_t)i;
    assert_true(train + validation <= TOKENS_MAX);
    return (struct dataset){
        .count = train + validation, .train_count = train, .token_bytes = 2, .ids = ids};
}

static void batch_sequential_ends_with_the_data(void **state)
{
    (void)state;
    struct batch_shape s = {.batch = 2, .seq = 8, .order = BATCH_SEQUENTIAL};
    struct error e = {""};
    struct dataset d = counting(16, 2);
    assert_false(batch_check(&d, &s, &e));
    EXPECT_ERROR(&e, "has 16 tokens", "least 17", "--batch 2", "--seq 8", "more data");
    d = counting(17, 2);
    assert_true(batch_check(&d, &s, &e));
}

static void batch_random_needs_one_window(void **state)
{
    (void)state;
    struct batch_shape s = {.batch = 4, .seq = 16};
    struct error e = {""};
    struct dataset d = counting(8, 1);
    assert_false(batch_check(&d, &s, &e));
    EXPECT_ERROR(&e, "has 8 tokens", "least 17", "--seq 16", "shorter --seq", "more data");
    d = counting(16, 1);
    assert_false(batch_check(&d, &s, &e));
    d = counting(17, 1);
    assert_true(batch_check(&d, &s, &e));
    int32_t tokens[64], targets[64];
    for (int64_t step = 0; step < 20; step++) {
        batch_fill(&d, &s, step, tokens, targets);
        for (int i = 0; i < 64; i++)
            assert_int_equal(targets[i], i % 16 + 1);
    }
}

static void batch_shape_is_checked(void **state)
{
    (void)state;
    struct dataset d = counting(100, 10);
    struct batch_shape s = {.batch = 1, .seq = 0};
    struct error e;
    assert_false(batch_check(&d, &s, &e));
    EXPECT_ERROR(&e, "--seq 0");
    s = (struct batch_shape){.batch = -3, .seq = 8};
    assert_false(batch_check(&d, &s, &e));
    EXPECT_ERROR(&e, "--batch -3");
    s = (struct batch_shape){.batch = INT64_MAX, .seq = 8, .order = BATCH_SEQUENTIAL};
    assert_false(batch_check(&d, &s, &e));
    s = (struct batch_shape){.batch = INT32_MAX, .seq = INT32_MAX, .order = BATCH_SEQUENTIAL};
    assert_false(batch_check(&d, &s, &e));
    EXPECT_ERROR(&e, "4611686014132420610"); // (2^31 - 1)^2 + 1: no overflow
}

static void batch_sequential_walks_every_window(void **state)
{
    (void)state;
    struct dataset d = counting(44, 5); // 5 windows of 8, then a rest of 3
    struct batch_shape s = {.batch = 2, .seq = 8, .order = BATCH_SEQUENTIAL};
    int32_t tokens[16], targets[16];
    for (int64_t step = 0; step < 20; step++) {
        batch_fill(&d, &s, step, tokens, targets);
        for (int64_t i = 0; i < 16; i++) {
            assert_int_equal(tokens[i], (2 * step + i / 8) % 5 * 8 + i % 8);
            assert_int_equal(targets[i], tokens[i] + 1);
        }
    }
}

static void batch_random_reaches_first_and_last_offset(void **state)
{
    (void)state;
    struct dataset d = counting(20, 30); // validation tokens are 20 .. 49
    struct batch_shape s = {.batch = 8, .seq = 8, .seed = 5};
    int32_t tokens[64], targets[64];
    int64_t seen[20] = {0};
    for (int64_t step = 0; step < 300; step++) {
        batch_fill(&d, &s, step, tokens, targets);
        for (int i = 0; i < 64; i++) {
            assert_int_equal(tokens[i], tokens[i / 8 * 8] + i % 8);
            assert_int_equal(targets[i], tokens[i] + 1);
            assert_in_range(targets[i], 1, 19);
        }
        for (int b = 0; b < 8; b++)
            seen[tokens[8 * b]]++;
    }
    for (int offset = 0; offset < 12; offset++) // 2400 draws over 20 - 8 offsets
        assert_in_range(seen[offset], 130, 270);
}

static void batch_is_pure_and_splits(void **state)
{
    (void)state;
    struct dataset d = counting(4000, 10);
    struct batch_shape s = {.batch = 6, .seq = 10, .seed = 5};
    int32_t a[60], b[60], at[60], bt[60];
    batch_fill(&d, &s, 3, a, at);
    batch_fill(&d, &s, 4, b, bt);
    assert_memory_not_equal(a, b, sizeof(a)); // another step
    batch_fill(&d, &s, 3, b, bt);
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_equal(at, bt, sizeof(at));
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++)
            assert_int_not_equal(a[10 * i], a[10 * j]); // another sample
    s.seed = 6;
    batch_fill(&d, &s, 3, b, bt);
    assert_memory_not_equal(a, b, sizeof(a)); // another seed
    s.seed = 5;
    for (int64_t row = 0; row < 6; row += 2)
        batch_fill_rows(&d, &s, 3, row, 2, b + 10 * row, bt + 10 * row);
    assert_memory_equal(a, b, sizeof(a)); // three micro-batches
    assert_memory_equal(at, bt, sizeof(at));
}

// ---- validation ----

enum { ROWS = 3, SEQ_MAX = 16 };

// Counts the targets of the evaluation batch that begins at window `first`; returns the ignored.
static int64_t count_targets(const struct dataset *d, int64_t seq, int64_t first, int64_t *times)
{
    int32_t tokens[ROWS * SEQ_MAX], targets[ROWS * SEQ_MAX];
    int64_t ignored = 0;
    batch_fill_validation(d, seq, first, ROWS, tokens, targets);
    for (int64_t i = 0; i < ROWS * seq; i++) {
        if (targets[i] == BATCH_IGNORE) {
            assert_int_equal(tokens[i], 0);
            ignored++;
            continue;
        }
        assert_int_equal(targets[i], tokens[i] + 1);
        assert_in_range(targets[i], d->train_count + 1, d->count - 1);
        times[targets[i]]++;
    }
    return ignored;
}

static void validation_counts_each_target_once(void **state)
{
    (void)state;
    for (int64_t tokens = 0; tokens < 70; tokens++) {
        for (int64_t seq = 1; seq <= SEQ_MAX; seq++) {
            struct dataset d = counting(50, tokens);
            int64_t times[TOKENS_MAX] = {0}, ignored = 0;
            int64_t targets = tokens > 0 ? tokens - 1 : 0;
            assert_int_equal(batch_validation_count(&d, seq), (targets + seq - 1) / seq);
            int64_t count = batch_evaluation_count(&d, seq, ROWS, 0);
            for (int64_t i = 0; i < count; i++) {
                int64_t first = batch_evaluation_window(&d, seq, ROWS, count, i);
                ignored += count_targets(&d, seq, first, times);
            }
            for (int64_t i = 0; i < TOKENS_MAX; i++)
                assert_int_equal(times[i], i > 50 && i < 50 + tokens);
            assert_int_equal(ignored, count * ROWS * seq - targets);
        }
    }
}

static void validation_rows_after_the_end_are_ignored(void **state)
{
    (void)state;
    struct dataset d = counting(50, 21); // windows 0, 1 and half of 2
    int32_t tokens[3 * 8], targets[3 * 8];
    for (int i = 0; i < 24; i++)
        tokens[i] = targets[i] = 7;
    batch_fill_validation(&d, 8, 4, 1, tokens + 16, targets + 16);
    for (int i = 0; i < 24; i++) {
        assert_int_equal(tokens[i], i < 16 ? 7 : 0);
        assert_int_equal(targets[i], i < 16 ? 7 : BATCH_IGNORE);
    }
}

static void validation_needs_a_target(void **state)
{
    (void)state;
    struct error e = {""};
    struct dataset d = counting(9, 1);
    assert_false(batch_check_validation(&d, &e));
    EXPECT_ERROR(&e, "has 1 of 10 tokens", "least 2", "more data");
    d = counting(10, 2);
    assert_true(batch_check_validation(&d, &e));
}

static void evaluation_batches_are_spread_evenly(void **state)
{
    (void)state;
    struct dataset d = counting(50, 801); // 100 windows of 8, 34 batches of 3
    assert_int_equal(batch_evaluation_count(&d, 8, ROWS, 0), 34);
    assert_int_equal(batch_evaluation_count(&d, 8, ROWS, 99), 34);
    assert_int_equal(batch_evaluation_count(&d, 8, ROWS, 4), 4);
    static const int64_t firsts[] = {0, 8 * ROWS, 17 * ROWS, 25 * ROWS};
    for (int64_t i = 0; i < 4; i++)
        assert_int_equal(batch_evaluation_window(&d, 8, ROWS, 4, i), firsts[i]);
}

static void ignore_is_a_fraction_and_pure(void **state)
{
    (void)state;
    enum { N = 20000, SEQ = 10 };
    static int32_t a[N], b[N];
    memset(a, 1, sizeof(a));
    memset(b, 1, sizeof(b));
    batch_ignore(a, 0, N / SEQ, SEQ, 0.0, 9);
    assert_memory_equal(a, b, sizeof(a));
    batch_ignore(a, 0, N / SEQ, SEQ, 0.25, 9);
    int64_t ignored = 0;
    for (int i = 0; i < N; i++)
        ignored += a[i] == BATCH_IGNORE;
    assert_in_range(ignored, N / 4 - 400, N / 4 + 400);
    for (int64_t row = 0; row < N / SEQ; row += 4)
        batch_ignore(b + row * SEQ, row, 4, SEQ, 0.25, 9);
    assert_memory_equal(a, b, sizeof(a)); // micro-batches
    batch_ignore(b, 0, N / SEQ, SEQ, 0.25, 10);
    assert_memory_not_equal(a, b, sizeof(a));
    batch_ignore(b, 0, N / SEQ, SEQ, 1.0, 9);
    for (int i = 0; i < N; i++)
        assert_int_equal(b[i], BATCH_IGNORE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_is_pure_and_prefix_stable),
        cmocka_unit_test(corpus_has_fifty_to_sixty_five_characters),
        cmocka_unit_test(corpus_agrees_in_articles_and_capitals),
        cmocka_unit_test(tokenizer_round_trips),
        cmocka_unit_test(tokenizer_counts_characters_not_bytes),
        cmocka_unit_test(tokenizer_refuses_binary),
        cmocka_unit_test(tokenizer_names_unknown_characters),
        cmocka_unit_test(tokenizer_vocabulary_has_a_limit),
        cmocka_unit_test(tokenizer_text_round_trips),
        cmocka_unit_test(tokenizer_text_is_checked),
        cmocka_unit_test(dataset_holds_the_text),
        cmocka_unit_test(dataset_uses_two_bytes_above_256_characters),
        cmocka_unit_test(dataset_builtin_is_the_corpus),
        cmocka_unit_test(dataset_obeys_a_fixed_tokenizer),
        cmocka_unit_test(dataset_refuses_what_is_no_text),
        cmocka_unit_test(batch_sequential_ends_with_the_data),
        cmocka_unit_test(batch_random_needs_one_window),
        cmocka_unit_test(batch_shape_is_checked),
        cmocka_unit_test(batch_sequential_walks_every_window),
        cmocka_unit_test(batch_random_reaches_first_and_last_offset),
        cmocka_unit_test(batch_is_pure_and_splits),
        cmocka_unit_test(validation_counts_each_target_once),
        cmocka_unit_test(validation_rows_after_the_end_are_ignored),
        cmocka_unit_test(validation_needs_a_target),
        cmocka_unit_test(evaluation_batches_are_spread_evenly),
        cmocka_unit_test(ignore_is_a_fraction_and_pure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
