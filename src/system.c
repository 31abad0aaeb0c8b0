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
#endif

// A line "Name:   123 kB" of /proc/self/status, in bytes.
static int64_t status_bytes(const char *name)
{
    char line[256];
    int64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
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
    return status_bytes("VmRSS");
#endif
}

int64_t system_peak_resident_bytes(void)
{
#ifdef __APPLE__
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss : 0;
#else
    return status_bytes("VmHWM");
#endif
}

double system_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
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
