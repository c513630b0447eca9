/* Errors for the daemon's own process: preload this, and name a control file in FAILING_CONTROL.

   While the control file exists its first word says what fails: "sync" makes fdatasync of a regular file return EIO,
   "write" makes pwritev to one return EIO, "read" makes pread of one do so, "full" makes posix_fallocate return ENOSPC, "hang" makes fdatasync wait
   until the file is gone. Everything else works as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int wanted(const char *what)
{
    const char *path = getenv("FAILING_CONTROL");
    char text[16] = {0};
    if (!path) return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 && strncmp(text, what, strlen(what)) == 0;
}

static int regular(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    while (wanted("hang")) usleep(20000);
    if (regular(fd) && wanted("sync")) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

static ssize_t failing_write(const char *name, int fd, const struct iovec *parts, int count, off_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t) =
        (ssize_t (*)(int, const struct iovec *, int, off_t))dlsym(RTLD_NEXT, name);
    if (regular(fd) && wanted("write")) {
        errno = EIO;
        return -1;
    }
    return real(fd, parts, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    return failing_write("pwritev", fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset)
{
    return failing_write("pwritev64", fd, parts, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t, int) =
        (ssize_t (*)(int, const struct iovec *, int, off_t, int))dlsym(RTLD_NEXT, "pwritev2");
    if (regular(fd) && wanted("write")) {
        errno = EIO;
        return -1;
    }
    return real(fd, parts, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t, int) =
        (ssize_t (*)(int, const struct iovec *, int, off_t, int))dlsym(RTLD_NEXT, "pwritev64v2");
    if (regular(fd) && wanted("write")) {
        errno = EIO;
        return -1;
    }
    return real(fd, parts, count, offset, flags);
}

#define FAILING_READ(name)                                                                            \
    ssize_t name(int fd, void *to, size_t length, off_t offset)                                       \
    {                                                                                                 \
        ssize_t (*real)(int, void *, size_t, off_t) =                                                 \
            (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, #name);                         \
        if (regular(fd) && wanted("read")) {                                                          \
            errno = EIO;                                                                              \
            return -1;                                                                                \
        }                                                                                             \
        return real(fd, to, length, offset);                                                          \
    }

#define FAILING_READS(name)                                                                           \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t offset, int flags)               \
    {                                                                                                 \
        ssize_t (*real)(int, const struct iovec *, int, off_t, int) =                                 \
            (ssize_t (*)(int, const struct iovec *, int, off_t, int))dlsym(RTLD_NEXT, #name);         \
        if (regular(fd) && wanted("read")) {                                                          \
            errno = EIO;                                                                              \
            return -1;                                                                                \
        }                                                                                             \
        return real(fd, parts, count, offset, flags);                                                 \
    }

FAILING_READ(pread)
FAILING_READ(pread64)
FAILING_READS(preadv2)
FAILING_READS(preadv64v2)

int posix_fallocate(int fd, off_t offset, off_t length)
{
    int (*real)(int, off_t, off_t) = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
    return wanted("full") ? ENOSPC : real(fd, offset, length);
}

int posix_fallocate64(int fd, off_t offset, off_t length)
{
    int (*real)(int, off_t, off_t) = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate64");
    return wanted("full") ? ENOSPC : real(fd, offset, length);
}
