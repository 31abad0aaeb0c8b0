#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#include "src/system.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

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
