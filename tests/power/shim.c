/* Stands between a program and the C library (LD_PRELOAD). For paths under one folder it logs every call that changes
 * the disk, in the order of all processes, and can let the n-th of these calls fail. tests/power/shim.py has the Python
 * side of `struct control` and of the log. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control { /* shared by all processes through a mapped file */
    _Atomic long long calls; /* that could have failed */
    long long fail_at;       /* the call that fails, from 1; 0: none */
    long long error;         /* its errno */
    long long lasting;       /* whether all later calls fail too */
    _Atomic long long clock; /* seconds by which the time of day is wrong */
    char folder[2032];       /* what is watched; empty: nothing */
    char log[2032];          /* empty: no log */
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FEDRAY_TEST_SHIM");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    void *found = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED) control = found;
    syscall(SYS_close, fd);
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static int watched(const char *path) {
    size_t length = control ? strlen(control->folder) : 0;
    return length && !strncmp(path, control->folder, length) && (path[length] == '/' || !path[length]);
}

/* The absolute path of a name in an open folder; whether it is watched. */
static int resolve(int dirfd, const char *name, char *path) {
    if (!control || !control->folder[0] || !name) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char link[64], base[PATH_MAX / 2];
        if (dirfd == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
        snprintf(path, PATH_MAX, "%s/%s", base, name);
    }
    return watched(path);
}

static int of_fd(int fd, char *path) {
    if (!control || !control->folder[0]) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int before = errno;
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    errno = before;
    if (n < 0) return 0;
    path[n] = 0;
    return watched(path);
}

/* The log, locked: calls stand in it in the order in which they took effect. -1: there is none. */
static int locked(void) {
    if (!control->log[0]) return -1;
    int before = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, control->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) syscall(SYS_flock, fd, LOCK_EX); /* ends with the process */
    errno = before;
    return fd;
}

static void release(int log) {
    int before = errno;
    if (log >= 0) syscall(SYS_close, log);
    errno = before;
}

/* One line of the log: call, offset, bytes that follow, path, second path. */
static void record(int log, const char *call, const char *path, const char *second, long long offset, const void *data,
                   size_t n) {
    if (log < 0) return;
    int before = errno;
    char head[3 * PATH_MAX];
    int length = snprintf(head, sizeof head, "%s\t%lld\t%zu\t%s\t%s\n", call, offset, n, path, second ? second : "");
    struct iovec parts[2] = {{head, (size_t)length}, {(void *)data, n}};
    syscall(SYS_writev, log, parts, n ? 2 : 1);
    errno = before;
}

/* Log what a call has just written, as it stands in the file. */
static void record_content(int log, const char *path, long long offset, ssize_t n) {
    if (n <= 0 || log < 0) return;
    int before = errno, fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    char *data = malloc((size_t)n);
    if (fd >= 0 && data && syscall(SYS_pread64, fd, data, (size_t)n, offset) == n)
        record(log, "write", path, NULL, offset, data, (size_t)n);
    else
        record(log, "lost", path, NULL, offset, NULL, 0);
    free(data);
    if (fd >= 0) syscall(SYS_close, fd);
    errno = before;
}

/* Whether this call is to fail. A full disk does not refuse to remove things. */
static int fails(int removes) {
    if (removes && control->error == ENOSPC) return 0;
    long long now = atomic_fetch_add(&control->calls, 1) + 1;
    if (!control->fail_at || now < control->fail_at || (now > control->fail_at && !control->lasting)) return 0;
    errno = (int)control->error;
    return 1;
}

static int opened(int dirfd, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int writes = (flags & O_ACCMODE) != O_RDONLY, mine = writes && resolve(dirfd, name, path), is_new = 0;
    if (mine) {
        struct stat found;
        is_new = (flags & O_CREAT) && syscall(SYS_newfstatat, dirfd, name, &found, 0);
        errno = 0;
        if ((is_new || (flags & O_TRUNC)) && fails(0)) return -1;
    }
    int log = mine ? locked() : -1;
    int fd = (int)syscall(SYS_openat, dirfd, name, flags, mode);
    if (mine && fd >= 0 && (is_new || (flags & O_TRUNC)))
        record(log, is_new ? "create" : "truncate", path, NULL, 0, NULL, 0);
    release(log);
    return fd;
}

#define MODE(flags, mode)                                                                                              \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }
int open(const char *name, int flags, ...) { MODE(flags, mode) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags, mode) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags, mode) return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags, mode) return opened(at, name, flags, mode); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static FILE *stream(const char *name, const char *mode, FILE *(*next)(const char *, const char *)) {
    char path[PATH_MAX];
    int mine = mode[0] != 'r' && resolve(AT_FDCWD, name, path);
    struct stat found;
    int is_new = mine && syscall(SYS_newfstatat, AT_FDCWD, name, &found, 0);
    if (mine && fails(0)) return NULL;
    int log = mine ? locked() : -1;
    FILE *file = next(name, mode);
    if (mine && file && (is_new || mode[0] == 'w'))
        record(log, is_new ? "create" : "truncate", path, NULL, 0, NULL, 0);
    release(log);
    return file;
}
FILE *fopen(const char *name, const char *mode) { return stream(name, mode, REAL(fopen)); }
FILE *fopen64(const char *name, const char *mode) { return stream(name, mode, REAL(fopen64)); }

#define WRITES(call, fd, at)                                                                                           \
    char path[PATH_MAX];                                                                                               \
    int mine = of_fd(fd, path);                                                                                        \
    if (mine && fails(0)) return -1;                                                                                   \
    int log = mine ? locked() : -1;                                                                                    \
    ssize_t n = call;                                                                                                  \
    record_content(log, path, at, n);                                                                                  \
    release(log);                                                                                                      \
    return n;
#define END(fd) (syscall(SYS_lseek, fd, 0, SEEK_CUR) - n)
ssize_t write(int fd, const void *data, size_t size) { WRITES(syscall(SYS_write, fd, data, size), fd, END(fd)) }
ssize_t writev(int fd, const struct iovec *parts, int count) { WRITES(syscall(SYS_writev, fd, parts, count), fd, END(fd)) }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { WRITES(syscall(SYS_pwrite64, fd, data, size, at), fd, at) }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { WRITES(syscall(SYS_pwrite64, fd, data, size, at), fd, at) }
ssize_t sendfile(int fd, int from, off_t *at, size_t size) { WRITES(syscall(SYS_sendfile, fd, from, at, size), fd, END(fd)) }
ssize_t sendfile64(int fd, int from, off64_t *at, size_t size) { WRITES(syscall(SYS_sendfile, fd, from, at, size), fd, END(fd)) }

#define CHANGES(call, title, removes, mine, offset)                                                                    \
    int ours = mine;                                                                                                   \
    if (ours && fails(removes)) return -1;                                                                             \
    int log = ours ? locked() : -1;                                                                                    \
    int done = (int)(call);                                                                                            \
    if (!done) record(log, title, path, other, offset, NULL, 0);                                                       \
    release(log);                                                                                                      \
    return done;
#define ONE(call, title, removes, at, name, offset)                                                                    \
    char path[PATH_MAX], other[1] = "";                                                                                \
    CHANGES(call, title, removes, resolve(at, name, path), offset)
#define TWO(call, title, x, a, y, b)                                                                                   \
    char path[PATH_MAX], other[PATH_MAX];                                                                              \
    CHANGES(call, title, 0, resolve(x, a, path) | resolve(y, b, other), 0)
#define HERE AT_FDCWD
int rename(const char *a, const char *b) { TWO(syscall(SYS_renameat2, HERE, a, HERE, b, 0), "rename", HERE, a, HERE, b) }
int renameat(int x, const char *a, int y, const char *b) { TWO(syscall(SYS_renameat2, x, a, y, b, 0), "rename", x, a, y, b) }
int link(const char *a, const char *b) { TWO(syscall(SYS_linkat, HERE, a, HERE, b, 0), "link", HERE, a, HERE, b) }
int linkat(int x, const char *a, int y, const char *b, int f) { TWO(syscall(SYS_linkat, x, a, y, b, f), "link", x, a, y, b) }
int unlink(const char *a) { ONE(syscall(SYS_unlinkat, HERE, a, 0), "remove", 1, HERE, a, 0) }
int rmdir(const char *a) { ONE(syscall(SYS_unlinkat, HERE, a, AT_REMOVEDIR), "remove", 1, HERE, a, 0) }
int unlinkat(int x, const char *a, int f) { ONE(syscall(SYS_unlinkat, x, a, f), "remove", 1, x, a, 0) }
int mkdir(const char *a, mode_t m) { ONE(syscall(SYS_mkdirat, HERE, a, m), "folder", 0, HERE, a, 0) }
int mkdirat(int x, const char *a, mode_t m) { ONE(syscall(SYS_mkdirat, x, a, m), "folder", 0, x, a, 0) }
int truncate(const char *a, off_t n) { ONE(syscall(SYS_truncate, a, n), "truncate", 0, HERE, a, n) }
int truncate64(const char *a, off64_t n) { ONE(syscall(SYS_truncate, a, n), "truncate", 0, HERE, a, n) }

#define ON_FD(call, title, offset)                                                                                     \
    char path[PATH_MAX];                                                                                               \
    int mine = of_fd(fd, path);                                                                                        \
    if (mine && fails(0)) return -1;                                                                                   \
    int log = mine ? locked() : -1;                                                                                    \
    int done = (int)(call);                                                                                            \
    if (!done) record(log, title, path, NULL, offset, NULL, 0);                                                        \
    release(log);                                                                                                      \
    return done;
int ftruncate(int fd, off_t n) { ON_FD(syscall(SYS_ftruncate, fd, n), "truncate", n) }
int ftruncate64(int fd, off64_t n) { ON_FD(syscall(SYS_ftruncate, fd, n), "truncate", n) }
int fsync(int fd) { ON_FD(0 * fd, "sync", 0) } /* nothing reaches the disk in these tests, and nothing need wait */
int fdatasync(int fd) { ON_FD(0 * fd, "sync", 0) }
int syncfs(int fd) { ON_FD(0 * fd, "sync all", 0) }

#define WRONG (control ? control->clock : 0)
int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = (int)syscall(SYS_clock_gettime, clock, now);
    if (!done && clock == CLOCK_REALTIME) now->tv_sec += WRONG;
    return done;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int done = (int)syscall(SYS_gettimeofday, now, zone);
    if (!done && now) now->tv_sec += WRONG;
    return done;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
