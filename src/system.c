#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700
#define _DARWIN_C_SOURCE
#include "src/system.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

extern char **environ;

#ifndef __APPLE__

// A line "Name:   123 kB" of a file under /proc, in bytes; 0 if there is none.
static int64_t proc_bytes(const char *path, const char *name)
{
    char line[256];
    int64_t kib = 0;
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return 0;
    size_t length = strlen(name);
    while (fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            long long value = 0;
            if (sscanf(line + length + 1, "%lld", &value) == 1)
                kib = value;
        }
    fclose(f);
    return kib * 1024;
}

#endif

int64_t system_resident_bytes(void)
{
#ifdef __APPLE__
    mach_task_basic_info_data_t info;
    mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
    if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &count) ==
        KERN_SUCCESS)
        return (int64_t)info.resident_size;
    return 0;
#else
    return proc_bytes("/proc/self/status", "VmRSS");
#endif
}

int64_t system_peak_resident_bytes(void)
{
#ifdef __APPLE__
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss : 0;
#else
    return proc_bytes("/proc/self/status", "VmHWM");
#endif
}

#ifdef __APPLE__

int64_t system_available_bytes(void)
{
    vm_statistics64_data_t v;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&v, &count) !=
        KERN_SUCCESS)
        return 0;
    int64_t pages = (int64_t)v.free_count + v.inactive_count + v.purgeable_count;
    return pages * (int64_t)sysconf(_SC_PAGESIZE);
}

#else

// The number in a file of one; -1 if there is none ("max": no limit).
static int64_t number_in(const char *path)
{
    long long value = -1;
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return -1;
    if (fscanf(f, "%lld", &value) != 1)
        value = -1;
    fclose(f);
    return value;
}

// From our group up to the root: the tightest limit, less what is used.
static int64_t tightest(const char *mount, char *group, const char *limit_name,
                        const char *used_name)
{
    char path[4096 + 128];
    int64_t least = INT64_MAX;
    for (;;) {
        snprintf(path, sizeof(path), "%s%s/%s", mount, group, limit_name);
        int64_t limit = number_in(path);
        snprintf(path, sizeof(path), "%s%s/%s", mount, group, used_name);
        int64_t used = number_in(path);
        if (limit >= 0 && used >= 0 && limit - used < least)
            least = limit > used ? limit - used : 1;
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return least;
        *slash = 0;
    }
}

// Control groups of version 2 ("0::/path") and 1 ("5:memory:/path").
static int64_t left_by_groups(void)
{
    char line[4096];
    int64_t least = INT64_MAX;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (f == NULL)
        return least;
    while (fgets(line, sizeof(line), f) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *group = strchr(line, ':') != NULL ? strchr(strchr(line, ':') + 1, ':') : NULL;
        if (group == NULL)
            continue;
        int64_t left = INT64_MAX;
        if (strncmp(line, "0::", 3) == 0)
            left = tightest("/sys/fs/cgroup", group + 1, "memory.max", "memory.current");
        else if (strstr(line, ":memory:") != NULL)
            left = tightest("/sys/fs/cgroup/memory", group + 1, "memory.limit_in_bytes",
                            "memory.usage_in_bytes");
        least = left < least ? left : least;
    }
    fclose(f);
    return least;
}

int64_t system_available_bytes(void)
{
    int64_t machine = proc_bytes("/proc/meminfo", "MemAvailable"), groups = left_by_groups();
    if (machine <= 0)
        return groups < INT64_MAX ? groups : 0;
    return machine < groups ? machine : groups;
}

#endif

double system_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void system_cpu_name(char *out, size_t bytes)
{
    snprintf(out, bytes, "unknown processor");
#ifdef __APPLE__
    size_t length = bytes;
    if (sysctlbyname("machdep.cpu.brand_string", out, &length, NULL, 0) != 0)
        snprintf(out, bytes, "unknown processor");
#else
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (f == NULL)
        return;
    while (fgets(line, sizeof(line), f) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\t\n"), value);
        break;
    }
    fclose(f);
#endif
}

double system_thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool system_is_terminal(int fd)
{
    return isatty(fd) != 0;
}

int system_terminal_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void system_hold_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) // the lowest number that is free is fd itself
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void system_calm_threads(char *const argv[])
{
#if defined(_OPENMP) && defined(__linux__)
    static const char *const said[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
    for (int i = 0; i < COUNT_OF(said); i++)
        if (getenv(said[i]) != NULL)
            return;
    setenv("GOMP_SPINCOUNT", "1000", 1); // gcc's OpenMP: some microseconds
    setenv("KMP_BLOCKTIME", "0", 1);     // clang's: milliseconds
    execv("/proc/self/exe", argv);       // returns only if that cannot be
#else
    (void)argv;
#endif
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = 1;
    signal(number, SIG_DFL);
}

void system_catch_interrupt(void)
{
    interrupted = 0;
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
}

bool system_was_interrupted(void)
{
    return interrupted != 0;
}

bool system_make_directory(const char *path, struct error *e)
{
    char part[4096];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof(part))
        return refuse(e, "'%.60s': not a name for a directory", path);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return refuse(e, "cannot make the directory %s: %s", part, strerror(errno));
    }
    struct stat s;
    if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode))
        return refuse(e, "%s is not a directory: choose another", path);
    return true;
}

bool system_is_same_place(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool system_can_write(const char *path)
{
    struct stat s;
    bool is_there = lstat(path, &s) == 0;
    FILE *f = fopen(path, "a");
    if (f == NULL)
        return false;
    fclose(f);
    if (!is_there)
        remove(path);
    return true;
}

bool system_end_file(FILE *f, const char *path)
{
    struct stat s;
    bool ok = fflush(f) == 0 && !ferror(f);
    int why = errno;
    if (f == stdout)
        return ok;
    if (fclose(f) != 0 && ok) {
        why = errno;
        ok = false;
    }
    if (!ok && lstat(path, &s) == 0 && S_ISREG(s.st_mode)) // a device stays
        remove(path);
    errno = why;
    return ok;
}

bool system_make_temporary(char path[SYSTEM_PATH_BYTES], struct error *e)
{
    const char *parent = getenv("TMPDIR");
    if (parent == NULL || parent[0] == 0)
        parent = "/tmp";
    if (snprintf(path, SYSTEM_PATH_BYTES, "%s/memtape-XXXXXX", parent) >= SYSTEM_PATH_BYTES)
        return refuse(e, "TMPDIR %.60s...: its path is too long", parent);
    if (mkdtemp(path) != NULL)
        return true;
    return refuse(e, "cannot make a directory in %s: %s; TMPDIR may name another place", parent,
                  strerror(errno));
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s;
    (void)kind;
    (void)at;
    return remove(path);
}

void system_remove_tree(const char *path)
{
    enum { OPEN_MAX_ = 8 };
    nftw(path, remove_one, OPEN_MAX_, FTW_DEPTH | FTW_PHYS);
}

void system_program(char path[SYSTEM_PATH_BYTES])
{
#ifdef __APPLE__
    uint32_t size = SYSTEM_PATH_BYTES;
    if (_NSGetExecutablePath(path, &size) != 0)
        path[0] = 0;
#else
    ssize_t length = readlink("/proc/self/exe", path, SYSTEM_PATH_BYTES - 1);
    path[length > 0 && length < SYSTEM_PATH_BYTES - 1 ? length : 0] = 0;
#endif
}

bool system_run(const char *path, char *const argv[], bool to_stderr, int *status, struct error *e)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    int ended;
    posix_spawn_file_actions_init(&actions);
    if (to_stderr)
        posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    int failed = posix_spawn(&child, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0)
        return refuse(e, "%s: %s", path, strerror(failed));
    while (waitpid(child, &ended, 0) < 0)
        if (errno != EINTR)
            return refuse(e, "%s: %s", path, strerror(errno));
    *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
    return true;
}
