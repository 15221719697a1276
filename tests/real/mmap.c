// Mapped files against read(2) and write(2): mmap DIRECTORY MEGABYTES
//
// Each case says what must hold. All within one machine, where the page cache is one: a mapping, a second mapping and
// read(2) see the same bytes at once; after msync and eviction the file system itself must give them again.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "mmap.c:%d: %s: not so: %s (%s)\n", __LINE__, __func__, #condition, strerror(errno));      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const char *directory;
static size_t page;

static int open_new(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    EXPECT(fd >= 0);
    return fd;
}

static int reopen(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR);
    EXPECT(fd >= 0);
    return fd;
}

static uint8_t *shared(int fd, size_t length, int protection) {
    uint8_t *at = mmap(NULL, length, protection, MAP_SHARED, fd, 0);
    EXPECT(at != MAP_FAILED);
    return at;
}

static uint8_t byte_at(size_t offset, uint8_t salt) { return (offset >> 12) * 31 + offset * 7 + salt; }

static void evict(int fd) {
    EXPECT(fsync(fd) == 0);
    EXPECT(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

// What is stored in a shared mapping is what read(2) and another mapping see, then what a new open sees.
static void stores_are_seen_by_read_and_by_another_mapping(size_t length) {
    int fd = open_new("stores");
    EXPECT(ftruncate(fd, length) == 0);
    uint8_t *writer = shared(fd, length, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < length; i++) writer[i] = byte_at(i, 1);
    int other = reopen("stores");
    uint8_t *reader = shared(other, length, PROT_READ);
    EXPECT(memcmp(writer, reader, length) == 0);
    uint8_t *bytes = malloc(length);
    EXPECT(pread(other, bytes, length, 0) == (ssize_t)length);
    EXPECT(memcmp(writer, bytes, length) == 0);
    EXPECT(msync(writer, length, MS_SYNC) == 0);
    EXPECT(munmap(writer, length) == 0 && munmap(reader, length) == 0);
    evict(fd);
    EXPECT(close(fd) == 0 && close(other) == 0);
    fd = reopen("stores");
    memset(bytes, 0, length);
    size_t at = 0;
    for (ssize_t n; at < length && (n = pread(fd, bytes + at, length - at, at)) > 0;) at += n;
    EXPECT(at == length);
    for (size_t i = 0; i < length; i++) EXPECT(bytes[i] == byte_at(i, 1));
    free(bytes);
    EXPECT(close(fd) == 0);
}

// write(2) is seen in a mapping made before.
static void writes_are_seen_in_a_mapping(void) {
    int fd = open_new("writes");
    size_t length = 64 * page;
    EXPECT(ftruncate(fd, length) == 0);
    uint8_t *at = shared(fd, length, PROT_READ);
    EXPECT(at[0] == 0 && at[length - 1] == 0);
    uint8_t bytes[777];
    for (size_t offset = 100; offset + sizeof bytes < length; offset += 3 * page + 11) {
        memset(bytes, (int)(offset & 0xff), sizeof bytes);
        EXPECT(pwrite(fd, bytes, sizeof bytes, offset) == sizeof bytes);
        EXPECT(memcmp(at + offset, bytes, sizeof bytes) == 0);
    }
    EXPECT(munmap(at, length) == 0 && close(fd) == 0);
}

// Sparse stores dirty single pages; the pages between stay zero. Nothing but munmap and close: no msync.
static void scattered_stores_survive_close_without_msync(void) {
    int fd = open_new("scattered");
    size_t pages = 2000;
    EXPECT(ftruncate(fd, pages * page) == 0);
    uint8_t *at = shared(fd, pages * page, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < pages; i += 7) at[i * page + i] = (uint8_t)(i | 1);
    EXPECT(munmap(at, pages * page) == 0);
    EXPECT(close(fd) == 0);
    fd = reopen("scattered");
    evict(fd);
    at = shared(fd, pages * page, PROT_READ);
    for (size_t i = 0; i < pages; i++) {
        EXPECT(at[i * page + i] == (i % 7 == 0 ? (uint8_t)(i | 1) : 0));
        EXPECT(at[i * page + (i + 1) % page] == 0);
    }
    EXPECT(munmap(at, pages * page) == 0 && close(fd) == 0);
}

// Bytes behind the end of the file in its last page are not the file's: they do not come back when it grows.
// (tmpfs has no other home for a page than the cache, and does keep them.)
static void the_tail_of_the_last_page_is_not_the_files(void) {
    struct statfs system;
    EXPECT(statfs(directory, &system) == 0);
    if (system.f_type == TMPFS_MAGIC) return;
    int fd = open_new("tail");
    EXPECT(pwrite(fd, "abc", 3, 0) == 3);
    uint8_t *at = shared(fd, page, PROT_READ | PROT_WRITE);
    EXPECT(memcmp(at, "abc\0\0", 5) == 0);
    at[1] = 'B';
    at[10] = 'x';
    EXPECT(msync(at, page, MS_SYNC) == 0);
    struct stat attributes;
    EXPECT(fstat(fd, &attributes) == 0 && attributes.st_size == 3);
    EXPECT(munmap(at, page) == 0);
    evict(fd);
    EXPECT(close(fd) == 0);
    fd = reopen("tail");
    EXPECT(ftruncate(fd, 100) == 0);
    char bytes[100];
    EXPECT(pread(fd, bytes, sizeof bytes, 0) == sizeof bytes);
    EXPECT(memcmp(bytes, "aBc", 3) == 0);
    for (size_t i = 3; i < sizeof bytes; i++) EXPECT(bytes[i] == 0);
    EXPECT(close(fd) == 0);
}

// Shrunk and grown again, a mapped file holds zeroes where it was cut.
static void cut_and_grown_a_mapping_holds_zeroes(void) {
    int fd = open_new("cut");
    size_t length = 16 * page;
    EXPECT(ftruncate(fd, length) == 0);
    uint8_t *at = shared(fd, length, PROT_READ | PROT_WRITE);
    memset(at, 0xaa, length);
    EXPECT(ftruncate(fd, 5 * page + 123) == 0);
    EXPECT(ftruncate(fd, length) == 0);
    EXPECT(at[5 * page + 122] == 0xaa);
    for (size_t i = 5 * page + 123; i < length; i++) EXPECT(at[i] == 0);
    EXPECT(munmap(at, length) == 0 && close(fd) == 0);
}

// A private mapping's stores never reach the file.
static void private_stores_stay_private(void) {
    int fd = open_new("private");
    EXPECT(pwrite(fd, "original", 8, 0) == 8);
    uint8_t *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    EXPECT(at != MAP_FAILED);
    memcpy(at, "altered!", 8);
    char bytes[8];
    EXPECT(pread(fd, bytes, 8, 0) == 8 && memcmp(bytes, "original", 8) == 0);
    EXPECT(munmap(at, page) == 0 && close(fd) == 0);
}

// A mapping outlives its descriptor and the file's name.
static void a_mapping_outlives_close_and_unlink(void) {
    int fd = open_new("gone");
    size_t length = 40 * page;
    EXPECT(ftruncate(fd, length) == 0);
    uint8_t *at = shared(fd, length, PROT_READ | PROT_WRITE);
    memset(at, 1, length / 2);
    EXPECT(close(fd) == 0);
    char path[4096];
    snprintf(path, sizeof path, "%s/gone", directory);
    EXPECT(unlink(path) == 0);
    memset(at + length / 2, 2, length / 2);
    EXPECT(msync(at, length, MS_SYNC) == 0);
    EXPECT(at[0] == 1 && at[length / 2 - 1] == 1 && at[length / 2] == 2 && at[length - 1] == 2);
    EXPECT(munmap(at, length) == 0);
    EXPECT(access(path, F_OK) < 0 && errno == ENOENT);
}

// Processes that store into one mapping, each its own bytes, some in the same pages.
static void processes_share_a_mapping(void) {
    enum { PROCESSES = 4 };
    int fd = open_new("processes");
    size_t length = 256 * page;
    EXPECT(ftruncate(fd, length) == 0);
    EXPECT(close(fd) == 0);
    pid_t children[PROCESSES];
    for (int child = 0; child < PROCESSES; child++) {
        children[child] = fork();
        EXPECT(children[child] >= 0);
        if (children[child] == 0) {
            int own = reopen("processes");
            uint8_t *at = shared(own, length, PROT_READ | PROT_WRITE);
            for (size_t i = child; i < length; i += PROCESSES) at[i] = byte_at(i, child);
            EXPECT(msync(at, length, MS_SYNC) == 0);
            EXPECT(munmap(at, length) == 0 && close(own) == 0);
            _exit(0);
        }
    }
    for (int child = 0; child < PROCESSES; child++) {
        int status;
        EXPECT(waitpid(children[child], &status, 0) == children[child] && status == 0);
    }
    fd = reopen("processes");
    evict(fd);
    uint8_t *at = shared(fd, length, PROT_READ);
    for (size_t i = 0; i < length; i++) EXPECT(at[i] == byte_at(i, i % PROCESSES));
    EXPECT(munmap(at, length) == 0 && close(fd) == 0);
}

// A store through a mapping moves mtime, at the latest when it is synced.
static void a_store_moves_mtime(void) {
    int fd = open_new("mtime");
    EXPECT(ftruncate(fd, page) == 0);
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    EXPECT(futimens(fd, old) == 0);
    uint8_t *at = shared(fd, page, PROT_READ | PROT_WRITE);
    at[0] = 1;
    EXPECT(msync(at, page, MS_SYNC) == 0);
    EXPECT(munmap(at, page) == 0);
    EXPECT(close(fd) == 0);
    fd = reopen("mtime");
    struct stat attributes;
    EXPECT(fstat(fd, &attributes) == 0 && attributes.st_mtim.tv_sec > 1000000000);
    EXPECT(close(fd) == 0);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fputs("usage: mmap DIRECTORY MEGABYTES\n", stderr);
        return 2;
    }
    directory = argv[1];
    page = sysconf(_SC_PAGESIZE);
    stores_are_seen_by_read_and_by_another_mapping((size_t)atoi(argv[2]) << 20);
    writes_are_seen_in_a_mapping();
    scattered_stores_survive_close_without_msync();
    the_tail_of_the_last_page_is_not_the_files();
    cut_and_grown_a_mapping_holds_zeroes();
    private_stores_stay_private();
    a_mapping_outlives_close_and_unlink();
    processes_share_a_mapping();
    a_store_moves_mtime();
    return 0;
}
