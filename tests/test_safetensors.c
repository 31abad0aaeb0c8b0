// test_safetensors.c - a file comes back bit for bit, and a file that breaks the format is refused
// in one line that names file, tensor, got and expected.
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // mkdtemp
#endif
#include "nn/safetensors.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

enum { FILE_MOST = 4096, PATH_MOST = 512 };

static char directory[PATH_MOST] = "/tmp/memtape it's \"\xc3\xbc\" XXXXXX";

static char *path_of(const char *name, char path[PATH_MOST])
{
    snprintf(path, PATH_MOST, "%.400s/%.90s", directory, name);
    return path;
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

// ---- hostile files ----

struct hostile {
    const char *header;
    int64_t data_bytes;
    const char *part[3]; // of the message
};

#define ONE(dtype, shape, begin, end)                                                              \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const struct hostile hostile[] = {
    {"{\"w\":" ONE("F32", "[1]", 8, 4) "}", 8, {"tensor 'w'", "begin at 8", "end, 4"}},
    {"{\"w\":" ONE("F32", "[3]", 0, 12) "}", 8, {"tensor 'w'", "end at 12", "at most 8"}},
    {"{\"w\":" ONE("F16", "[4]", 0, 8) "}", 8, {"tensor 'w'", "'F16'", "F64, BF16, I32 or U8"}},
    {"{\"w\":" ONE("F32", "[3]", 0, 8) "}", 8, {"tensor 'w'", "span 8", "expected 12"}},
    {"{\"w\":" ONE("F32", "[]", 0, 8) "}", 8, {"tensor 'w'", "span 8", "expected 4 "}},
    {"{\"w\":" ONE("F32", "[0]", 0, 8) "}", 8, {"tensor 'w'", "span 8", "expected 0 "}},
    {"{\"w\":" ONE("F32", "[1]", 0, 4) ",\"w\":" ONE("F32", "[1]", 4, 8) "}",
     8,
     {"tensor 'w'", "twice", "names that differ"}},
    {"{\"w\":" ONE("F32", "[1]", 0, 4) ",\"\\u0077\":" ONE("F32", "[1]", 4, 8) "}",
     8,
     {"tensor 'w'", "twice", "names that differ"}},
    {"{\"a\":" ONE("F32", "[2]", 0, 8) ",\"b\":" ONE("F32", "[1]", 4, 8) "}",
     8,
     {"tensor 'b'", "begin at 4, expected 8", "overlaps the end of 'a'"}},
    {"{\"a\":" ONE("F32", "[1]", 0, 4) ",\"b\":" ONE("F32", "[1]", 8, 12) "}",
     12,
     {"tensor 'b'", "begin at 8, expected 4", "hole after the end of 'a'"}},
    {"{\"a\":" ONE("F32", "[1]", 4, 8) "}", 8, {"tensor 'a'", "begin at 4, expected 0", "hole"}},
    {"{\"w\":" ONE("F32", "[1]", 0, 4) "}", 5, {"bytes, expected", "last tensor ends", NULL}},
    {"{}", 1, {"has 11 bytes", "expected 10", NULL}},
    {"{\"w\":" ONE("F32", "[4294967296,4294967296]", 0, 0) "}",
     0,
     {"tensor 'w'", "shape [4294967296, 4294967296]", "too many"}},
    {"{\"w\":" ONE("F32", "[9223372036854775807]", 0, 4) "}", 4, {"tensor 'w'", "too many", NULL}},
    {"{\"w\":" ONE("F32", "[9223372036854775808]", 0, 4) "}",
     4,
     {"tensor 'w'", "below 2^63", NULL}},
    {"{\"w\":" ONE("F32", "[-1]", 0, 4) "}", 4, {"tensor 'w'", "got '-'", "at least 0"}},
    {"{\"w\":" ONE("F32", "[01]", 0, 4) "}", 4, {"tensor 'w'", "got '1'", "integer"}},
    {"{\"w\":" ONE("F32", "[1.0]", 0, 4) "}", 4, {"tensor 'w'", "got '.'", "integer"}},
    {"{\"w\":" ONE("F32", "[1e0]", 0, 4) "}", 4, {"tensor 'w'", "got 'e'", "integer"}},
    {"{\"w\":" ONE("F32", "[\"1\"]", 0, 4) "}", 4, {"tensor 'w'", "an integer", NULL}},
    {"{\"w\":" ONE("F32", "1", 0, 4) "}", 4, {"tensor 'w'", "got '1'", "'['"}},
    {"{\"w\":" ONE("F32", "[1,]", 0, 4) "}", 4, {"tensor 'w'", "got ']'", "an integer"}},
    {"{\"w\":" ONE("F32", "[1 1]", 0, 4) "}", 4, {"tensor 'w'", "got '1'", "']'"}},
    {"{\"w\":" ONE("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, {"tensor 'w'", "8 dim", NULL}},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}",
     4,
     {"tensor 'w'", "2 offsets", NULL}},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}",
     4,
     {"tensor 'w'", "2 offsets", NULL}},
    {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, {"tensor 'w'", "no shape", NULL}},
    {"{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4, {"tensor 'w'", "'dtype' twice", NULL}},
    {"{\"w\":{\"colour\":\"red\"}}", 4, {"tensor 'w'", "'colour'", "data_offsets"}},
    {"{\"w\":{}}", 0, {"tensor 'w'", "a string", NULL}},
    {"{\"w\":7}", 0, {"got '7'", "'{'", NULL}},
    {"{\"w\" " ONE("F32", "[1]", 0, 4) "}", 4, {"header byte 5", "got '{'", "JSON"}},
    {"{\"w\":" ONE("F32", "[1]", 0, 4) ",}", 4, {"got '}'", "a string", NULL}},
    {"{\"w\":" ONE("F32", "[1]", 0, 4) "} x", 4, {"got 'x'", "JSON", NULL}},
    {"{\"w\":" ONE("F32", "[1]", 0, 4) "} {}", 4, {"got '{'", "the end of the header", NULL}},
    {"{\"w\":" ONE("F32", "[1]", 0, 4), 4, {"its end", "JSON whose end is there", NULL}},
    {"[]", 0, {"header byte 0", "got '['", "'{'"}},
    {"", 0, {"its end", "'{'", NULL}},
    {"GGUF", 0, {"got 'G'", "JSON", NULL}},
    {"{\"w", 0, {"header byte", "JSON", NULL}},
    {"{\"w\":[[[[1]]]]}", 0, {"got '['", "3 levels", NULL}},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0, {"header byte 3", "3 levels", NULL}},
    {"{\"w\\u0000x\":" ONE("F32", "[1]", 0, 4) "}", 4, {"got '\\'", "a character", NULL}},
    {"{\"\\ud800\":" ONE("F32", "[1]", 0, 4) "}", 4, {"got '\\'", "a character", NULL}},
    {"{\"\\ud800\\u0041\":" ONE("F32", "[1]", 0, 4) "}", 4, {"got '\\'", "a character", NULL}},
    {"{\"\\udc00\":" ONE("F32", "[1]", 0, 4) "}", 4, {"got '\\'", "a character", NULL}},
    {"{\"\\u00g0\":" ONE("F32", "[1]", 0, 4) "}", 4, {"header byte 1", "JSON", NULL}},
    {"{\"\\x41\":" ONE("F32", "[1]", 0, 4) "}", 4, {"header byte 1", "JSON", NULL}},
    {"{\"\xff\":" ONE("F32", "[1]", 0, 4) "}", 4, {"got byte FF", "UTF-8", NULL}},
    {"{\"\xc0\x80\":" ONE("F32", "[1]", 0, 4) "}", 4, {"got byte C0", "UTF-8", NULL}},
    {"{\"\xed\xa0\x80\":" ONE("F32", "[1]", 0, 4) "}", 4, {"got byte ED", "UTF-8", NULL}},
    {"{\"a\nb\":" ONE("F32", "[1]", 0, 4) "}", 4, {"got byte 0A", "no such byte", NULL}},
    {"{\"a\\nb\":" ONE("F32", "[2]", 0, 4) "}", 4, {"tensor 'a?b'", "span 4", "expected 8"}},
    {"{\"__metadata__\":{\"a\":1}}", 0, {"got '1'", "a string", NULL}},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, {"got '{'", "a string", NULL}},
    {"{\"__metadata__\":[]}", 0, {"got '['", "'{'", NULL}},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, {"metadata 'a' twice", "differ", NULL}},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, {"__metadata__ once", NULL, NULL}},
};

// Eight bytes of length, the header, zeros. Returns how many.
static int64_t build(const char *header, int64_t data_bytes, uint8_t out[FILE_MOST])
{
    uint64_t length = strlen(header);
    assert_true(8 + (int64_t)length + data_bytes <= FILE_MOST);
    memset(out, 0, FILE_MOST);
    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    return 8 + (int64_t)length + data_bytes;
}

static void write_bytes(const char *path, const void *bytes, int64_t count)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, (size_t)count), count);
    assert_int_equal(close(fd), 0);
}

static void expect_refused(const void *bytes, int64_t count, const char *const part[3])
{
    struct safetensors f;
    struct error e = {"-"};
    uint8_t *copy = malloc((size_t)count + 1); // of this size, so that a sanitizer sees its end
    assert_non_null(copy);
    memcpy(copy, bytes, (size_t)count);
    bool ok = safetensors_open_memory(&f, "some file", copy, count, &e);
    safetensors_close(&f);
    free(copy);
    if (ok)
        fail_msg("accepted, expected '%s' '%s'", part[0], part[1] != NULL ? part[1] : "");
    assert_ptr_equal(strstr(e.text, "'some file': "), e.text);
    assert_null(strchr(e.text, '\n'));
    for (int i = 0; i < 3 && part[i] != NULL; i++)
        if (strstr(e.text, part[i]) == NULL)
            fail_msg("no <%s> in: %s", part[i], e.text);
}

static void hostile_headers_are_refused_by_name(void **state)
{
    (void)state;
    uint8_t bytes[FILE_MOST];
    for (int i = 0; i < COUNT_OF(hostile); i++) {
        int64_t count = build(hostile[i].header, hostile[i].data_bytes, bytes);
        assert_true(count < 250);
        expect_refused(bytes, count, hostile[i].part);
    }
}

static void hostile_lengths_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[FILE_MOST] = {0};
    memset(bytes, 0xff, 8);
    expect_refused(bytes, 100,
                   (const char *[]){"18446744073709551615 bytes", "at most 92", "whole?"});
    uint64_t length = 200000000;
    memcpy(bytes, &length, 8);
    expect_refused(bytes, 100, (const char *[]){"200000000 bytes", "at most 92", NULL});
    length = 93;
    memcpy(bytes, &length, 8);
    expect_refused(bytes, 100, (const char *[]){"93 bytes", "at most 92", NULL});
    expect_refused(bytes, 7, (const char *[]){"has 7 bytes", "at least 8", NULL});
    expect_refused(bytes, 0, (const char *[]){"has 0 bytes", "at least 8", NULL});
}

// A header that is really there, of nothing but values: not worth the tables it asks for.
static void a_large_header_of_nothing_is_refused_at_once(void **state)
{
    (void)state;
    enum { HEADER = 2 << 20 };
    static const char *const fill[] = {"[", "1,", "\"\",", "]", "{", "}", "\"\\", "[]"};
    char *bytes = malloc(HEADER + 8);
    assert_non_null(bytes);
    for (int i = 0; i < COUNT_OF(fill); i++) {
        uint64_t length = HEADER;
        memcpy(bytes, &length, 8);
        for (int at = 0; at < HEADER; at++)
            bytes[8 + at] = fill[i][at % (int)strlen(fill[i])];
        expect_refused(bytes, HEADER + 8, (const char *[]){"header byte", "expected", NULL});
        memcpy(bytes + 8, "[ ", 2);
        const char *expected = i == 1 ? "expected a header of tensors" : "expected";
        expect_refused(bytes, HEADER + 8, (const char *[]){"header byte", expected, NULL});
    }
    free(bytes);
}

// ---- files that look odd and are right ----

static void key_order_is_not_offset_order(void **state)
{
    (void)state;
    static const char header[] = " { \"z\" :" ONE(
        "U8", "[2,2]", 0,
        4) ",\n\t\"__metadata__\":{\"\\\"k\\u00fc\":\"\"},"
           "\"a\":" ONE("F32", "[]", 8, 12) ",\"none\":" ONE(
               "F64", "[0,7]", 8,
               8) ","
                  "\"\\ud83d\\ude00\\/"
                  "\\n\":{\"data_offsets\":[4,8],\"shape\":[1],\"dtype\":\"I32\"} }\r\n  ";
    uint8_t bytes[FILE_MOST], raw[4];
    int64_t count = build(header, 12, bytes);
    const float one = 1.5f;
    const int32_t two = -2;
    memcpy(bytes + count - 4, &one, 4);
    memcpy(bytes + count - 8, &two, 4);
    struct safetensors f;
    struct error e;
    if (!safetensors_open_memory(&f, "odd", bytes, count, &e))
        fail_msg("%s", e.text);
    assert_int_equal(f.tensor_count, 4);
    assert_string_equal(f.tensor[0].name, "z");
    assert_string_equal(f.tensor[1].name, "\xf0\x9f\x98\x80/\n");
    assert_string_equal(f.tensor[2].name, "none");
    assert_string_equal(f.tensor[3].name, "a");
    assert_string_equal(safetensors_metadata(&f, "\"k\xc3\xbc"), "");
    assert_null(safetensors_metadata(&f, "z"));
    assert_null(safetensors_find(&f, "b"));
    real value = 0;
    assert_int_equal(safetensors_count(safetensors_find(&f, "a")), 1);
    assert_true(safetensors_read(&f, safetensors_find(&f, "a"), &value, &e));
    assert_near(value, 1.5, 0);
    assert_int_equal(safetensors_count(safetensors_find(&f, "none")), 0);
    assert_true(safetensors_read(&f, safetensors_find(&f, "none"), &value, &e));
    assert_true(safetensors_read_bytes(&f, &f.tensor[1], raw, &e));
    assert_memory_equal(raw, &two, 4);
    assert_false(safetensors_read(&f, &f.tensor[0], &value, &e));
    assert_string_equal(e.text, "'odd': tensor 'z': got dtype U8, expected F32, F64 or BF16");
    safetensors_close(&f);
    safetensors_close(&f);
}

// ---- round trips ----

enum { LARGE = 30000 }; // more than a chunk, whatever the width

static const float f32[] = {0, -0.0f, 1.1f, INFINITY, -1e-42f, 3.4e38f};
static const double f64[] = {0.1, -0.0, 1e300, NAN};
static const int32_t i32[] = {INT32_MIN, -1, 0, INT32_MAX};
static const uint8_t u8[] = {0, 255, 7};
static real large[LARGE];

static const struct safetensors_entry entries[] = {
    {.name = "h.0",
     .suffix = ".m",
     .dtype = DTYPE_F64,
     .dim_count = 2,
     .dim = (int64_t[]){2, 2},
     .data = f64},
    {.name = NULL},
    {.name = "large",
     .dtype = DTYPE_REAL,
     .dim_count = 3,
     .dim = (int64_t[]){3, 100, 100},
     .data = large},
    {.name = "a \"\\\b\t\x01 \xc3\xbc\xf0\x9f\x98\x80",
     .dtype = DTYPE_F32,
     .dim_count = 1,
     .dim = (int64_t[]){6},
     .data = f32},
    {.name = "i", .dtype = DTYPE_I32, .dim_count = 1, .dim = (int64_t[]){4}, .data = i32},
    {.name = "none", .dtype = DTYPE_I32, .dim_count = 2, .dim = (int64_t[]){4, 0}, .data = i32},
    {.name = "", .dtype = DTYPE_U8, .dim_count = 1, .dim = (int64_t[]){3}, .data = u8},
    {.name = "one", .dtype = DTYPE_U8, .dim_count = 0, .dim = NULL, .data = u8 + 1},
};

static struct safetensors_entry entry(const void *user, int64_t i)
{
    return ((const struct safetensors_entry *)user)[i];
}

static const struct safetensors_pair pairs[] = {
    {"format", "test"}, {"z\n", "quote \" backslash \\ \x7f"}, {"empty", ""}, {"", "no key"}};

static void expect_entry(const struct safetensors *f, const struct safetensors_entry *x)
{
    char name[64];
    struct error e;
    snprintf(name, sizeof(name), "%s%s", x->name, x->suffix != NULL ? x->suffix : "");
    const struct safetensors_tensor *t = safetensors_find(f, name);
    assert_non_null(t);
    assert_int_equal(t->dtype, x->dtype);
    assert_int_equal(t->dim_count, x->dim_count);
    for (int i = 0; i < x->dim_count; i++)
        assert_int_equal(t->dim[i], x->dim[i]);
    static char raw[LARGE * sizeof(double)];
    assert_true(safetensors_read_bytes(f, t, raw, &e));
    if (t->end > t->begin)
        assert_memory_equal(raw, x->data, (size_t)(t->end - t->begin));
}

static void every_bit_comes_back(void **state)
{
    (void)state;
    char path[PATH_MOST];
    struct safetensors f;
    struct error e;
    for (int i = 0; i < LARGE; i++)
        large[i] = (real)1 / (real)(i + 1);
    path_of("round trip", path);
    if (!safetensors_write(path, entry, entries, COUNT_OF(entries), pairs, COUNT_OF(pairs), &e) ||
        !safetensors_open(&f, path, &e))
        fail_msg("%s", e.text);
    assert_int_equal(f.tensor_count, COUNT_OF(entries) - 1);
    for (int i = 0; i < COUNT_OF(entries); i++)
        if (entries[i].name != NULL)
            expect_entry(&f, &entries[i]);
    assert_int_equal(f.pair_count, COUNT_OF(pairs));
    for (int i = 0; i < COUNT_OF(pairs); i++)
        assert_string_equal(safetensors_metadata(&f, pairs[i].key), pairs[i].value);
    safetensors_close(&f);
    assert_int_equal(unlink(path), 0);
}

static void data_starts_at_a_multiple_of_eight(void **state)
{
    (void)state;
    char path[PATH_MOST];
    struct safetensors f;
    struct error e;
    path_of("aligned", path);
    for (const char *name = "12345678"; *name != 0; name++) {
        const struct safetensors_entry one = {.name = name, .dtype = DTYPE_U8, .data = u8};
        assert_true(safetensors_write(path, entry, &one, 1, NULL, 0, &e));
        assert_true(safetensors_open(&f, path, &e));
        assert_int_equal(f.data_start % 8, 0);
        assert_non_null(safetensors_find(&f, name));
        safetensors_close(&f);
    }
    assert_int_equal(unlink(path), 0);
}

// Each width is read into this build's real: its own bit for bit, the other rounded.
static void both_widths_become_real(void **state)
{
    (void)state;
    static float narrow[LARGE];
    static double wide[LARGE];
    static real got[LARGE];
    char path[PATH_MOST];
    struct safetensors f;
    struct error e;
    for (int i = 0; i < LARGE; i++) {
        wide[i] = 1.0 / (i + 3);
        narrow[i] = (float)wide[i];
    }
    const int64_t dim[] = {LARGE};
    const struct safetensors_entry both[] = {
        {.name = "wide", .dtype = DTYPE_F64, .dim_count = 1, .dim = dim, .data = wide},
        {.name = "narrow", .dtype = DTYPE_F32, .dim_count = 1, .dim = dim, .data = narrow}};
    path_of("widths", path);
    assert_true(safetensors_write(path, entry, both, 2, NULL, 0, &e));
    assert_true(safetensors_open(&f, path, &e));
    assert_true(safetensors_read(&f, safetensors_find(&f, "wide"), got, &e));
    for (int i = 0; i < LARGE; i++)
        assert_true(got[i] == (real)wide[i]);
    assert_true(safetensors_read(&f, safetensors_find(&f, "narrow"), got, &e));
    for (int i = 0; i < LARGE; i++)
        assert_true(got[i] == (real)narrow[i]);
    safetensors_close(&f);
    assert_int_equal(unlink(path), 0);
}

// A pipe that is read slowly, and a signal every millisecond: writes end early or not at all.
static void interrupt(int number)
{
    (void)number;
}

static void copy_slowly(const char *from, const char *to)
{
    char chunk[5000];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    for (ssize_t n; (n = read(in, chunk, sizeof(chunk))) > 0; usleep(2000))
        if (write(out, chunk, (size_t)n) != n)
            _exit(1);
    _exit(in < 0 || out < 0);
}

static void interrupted_writes_go_on(void **state)
{
    (void)state;
    char pipe_path[PATH_MOST], path[PATH_MOST];
    const struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = interrupt}; // without SA_RESTART
    struct safetensors f;
    struct error e;
    assert_int_equal(mkfifo(path_of("pipe", pipe_path), 0600), 0);
    path_of("copy", path);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        copy_slowly(pipe_path, path);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    bool ok = safetensors_write(pipe_path, entry, entries, COUNT_OF(entries), NULL, 0, &e);
    setitimer(ITIMER_REAL, &never, NULL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    if (!ok || !safetensors_open(&f, path, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < COUNT_OF(entries); i++)
        if (entries[i].name != NULL)
            expect_entry(&f, &entries[i]);
    safetensors_close(&f);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(pipe_path), 0); // what it did not make, it did not remove
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    char path[PATH_MOST];
    struct error e;
    struct safetensors f;
    static uint8_t bytes[FILE_MOST];
    path_of("prefix", path);
    assert_true(safetensors_write(path, entry, entries + 3, 5, pairs, COUNT_OF(pairs), &e));
    int fd = open(path, O_RDONLY);
    int64_t count = read(fd, bytes, sizeof(bytes));
    close(fd);
    assert_true(count > 400 && count < FILE_MOST);
    for (int64_t cut = 0; cut < count; cut++) {
        expect_refused(bytes, cut, (const char *[]){"expected", NULL, NULL});
        write_bytes(path, bytes, cut);
        assert_false(safetensors_open(&f, path, &e));
        assert_non_null(strstr(e.text, "/prefix': "));
    }
    expect_refused(bytes, count + 1, (const char *[]){"last tensor ends", NULL, NULL});
    assert_int_equal(unlink(path), 0);
}

static void a_comma_locale_changes_nothing(void **state)
{
    (void)state;
    if (!test_set_comma_locale())
        skip();
    every_bit_comes_back(state);
    key_order_is_not_offset_order(state);
    setlocale(LC_ALL, "C");
}

// ---- the world says no ----

static void what_cannot_be_opened_says_why(void **state)
{
    (void)state;
    struct safetensors f;
    struct error e;
    char path[PATH_MOST];
    assert_false(safetensors_open(&f, path_of("nothing here", path), &e));
    assert_non_null(strstr(e.text, "nothing here': cannot open: No such file"));
    assert_false(safetensors_open(&f, directory, &e));
    assert_non_null(strstr(e.text, "got a directory, expected a safetensors file"));
    assert_int_equal(mkfifo(path_of("fifo", path), 0600), 0);
    assert_false(safetensors_open(&f, path, &e)); // and does not wait for a writer
    assert_non_null(strstr(e.text, "no file, expected a safetensors file"));
    assert_int_equal(unlink(path), 0);
    assert_false(safetensors_open(&f, path, NULL));
}

static void what_cannot_be_written_says_why(void **state)
{
    (void)state;
    struct error e;
    char path[PATH_MOST];
    path_of("no/such/directory", path);
    assert_false(safetensors_write(path, entry, entries, COUNT_OF(entries), NULL, 0, &e));
    assert_non_null(strstr(e.text, "directory': cannot create it"));
    assert_non_null(strstr(e.text, "No such file or directory; expected"));
    const struct safetensors_entry latin = {.name = "\xfc", .dtype = DTYPE_U8, .data = u8};
    path_of("latin", path);
    assert_false(safetensors_write(path, entry, &latin, 1, NULL, 0, &e));
    assert_non_null(strstr(e.text, "'?': expected UTF-8"));
    assert_int_equal(access(path, F_OK), -1); // refused before anything was made
    if (access("/dev/full", W_OK) != 0)
        return;
    path_of("full",
            path); // a link, so that a writer that removes what it did not make removes that
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_false(safetensors_write(path, entry, entries, COUNT_OF(entries), NULL, 0, &e));
    assert_non_null(strstr(e.text, "/full': cannot write after 0 bytes: No space left"));
    assert_non_null(strstr(e.text, "room for the whole file"));
    assert_int_equal(unlink(path), 0); // still there
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_headers_are_refused_by_name),
        cmocka_unit_test(hostile_lengths_are_refused),
        cmocka_unit_test(a_large_header_of_nothing_is_refused_at_once),
        cmocka_unit_test(key_order_is_not_offset_order),
        cmocka_unit_test(every_bit_comes_back),
        cmocka_unit_test(data_starts_at_a_multiple_of_eight),
        cmocka_unit_test(both_widths_become_real),
        cmocka_unit_test(interrupted_writes_go_on),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(a_comma_locale_changes_nothing),
        cmocka_unit_test(what_cannot_be_opened_says_why),
        cmocka_unit_test(what_cannot_be_written_says_why),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
