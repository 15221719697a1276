// One file seen through two mounts of the same file system, used in turn.
//
//     two_mounts [-n OPERATIONS] [-s SEED] [-l LENGTH_MAX] [-v] PATH_A PATH_B
//
// The promise tested is close-to-open: what one mount wrote before it closed the file is what the other sees after it
// opened it. Each turn opens the file through a path chosen at random, does a few operations, and closes. The model is
// the file's bytes in memory; every read, through read(2) or a mapping, and every size is compared with it.
// Everything follows from the seed, so a failure repeats; the last operations are printed with it.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOG_LINES = 40, LOG_WIDTH = 120, TURN_MAX = 4, WRITE_MAX = 65536 };

static uint64_t state;
static uint8_t *model;      // the bytes the file must hold
static size_t model_len;    // and how many
static size_t length_max = 512 * 1024;
static uint8_t *buffer;
static char lines[LOG_LINES][LOG_WIDTH];
static uint64_t step;
static uint64_t turn;
static int verbose;
static const char *paths[2];

// xorshift64*: small, and the same everywhere.
static uint64_t draw(uint64_t below) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 2685821657736338717ULL >> 11) % below;
}

static void note(int side, const char *what, size_t offset, size_t length) {
    char *line = lines[step % LOG_LINES];
    snprintf(line, LOG_WIDTH, "%8llu turn %llu %c %-10s 0x%06zx .. 0x%06zx (0x%zx bytes) size 0x%zx",
             (unsigned long long)step, (unsigned long long)turn, "AB"[side], what, offset, offset + length, length,
             model_len);
    if (verbose) puts(line);
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    uint64_t first = step < LOG_LINES ? 0 : step - LOG_LINES + 1;
    for (uint64_t i = first; i <= step; i++) puts(lines[i % LOG_LINES]);
    va_list arguments;
    va_start(arguments, format);
    printf("FAILED at operation %llu: ", (unsigned long long)step);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    exit(1);
}

#define CHECK(call) ((call) < 0 ? fail("%s: %s", #call, strerror(errno)) : (void)0)

static void compare(const uint8_t *got, size_t offset, size_t length, const char *how) {
    if (memcmp(got, model + offset, length) == 0) return;
    size_t at = 0, wrong = 0;
    while (got[at] == model[offset + at]) at++;
    for (size_t i = at; i < length; i++) wrong += got[i] != model[offset + i];
    fail("%s: %zu wrong bytes, the first at 0x%zx: 0x%02x, not 0x%02x", how, wrong, offset + at, got[at],
         model[offset + at]);
}

static void check_size(int fd) {
    struct stat attributes;
    CHECK(fstat(fd, &attributes));
    if ((size_t)attributes.st_size != model_len)
        fail("size is 0x%llx, not 0x%zx", (unsigned long long)attributes.st_size, model_len);
}

// A range within the file's present bytes; false when there are none.
static int range_inside(size_t *offset, size_t *length) {
    if (model_len == 0) return 0;
    *offset = draw(model_len);
    *length = 1 + draw(model_len - *offset < WRITE_MAX ? model_len - *offset : WRITE_MAX);
    return 1;
}

// A range that may begin behind the end of the file.
static void range_anywhere(size_t *offset, size_t *length) {
    *offset = draw(length_max);
    *length = 1 + draw(length_max - *offset < WRITE_MAX ? length_max - *offset : WRITE_MAX);
}

static void grow_to(size_t end) {
    if (end > model_len) {
        memset(model + model_len, 0, end - model_len);
        model_len = end;
    }
}

static void fill(uint8_t *bytes, size_t length) {
    uint8_t tag = 1 + draw(255);
    for (size_t i = 0; i < length; i++) bytes[i] = tag + i * 7;
}

static void op_read(int side, int fd) {
    size_t offset, length;
    if (!range_inside(&offset, &length)) return;
    note(side, "read", offset, length);
    ssize_t n = pread(fd, buffer, length, offset);
    if (n != (ssize_t)length) fail("read gave %zd of %zu bytes: %s", n, length, n < 0 ? strerror(errno) : "short");
    compare(buffer, offset, length, "read");
}

static void op_read_all(int side, int fd) {
    note(side, "read all", 0, model_len);
    size_t at = 0;
    for (;;) {
        ssize_t n = pread(fd, buffer + at, length_max + 1 - at, at);
        CHECK(n);
        if (n == 0) break;
        at += n;
    }
    if (at != model_len) fail("end of file at 0x%zx, not 0x%zx", at, model_len);
    compare(buffer, 0, model_len, "read all");
}

static void op_write(int side, int fd) {
    size_t offset, length;
    range_anywhere(&offset, &length);
    fill(buffer, length);
    note(side, "write", offset, length);
    ssize_t n = pwrite(fd, buffer, length, offset);
    if (n != (ssize_t)length) fail("write took %zd of %zu bytes: %s", n, length, n < 0 ? strerror(errno) : "short");
    grow_to(offset + length);
    memcpy(model + offset, buffer, length);
}

// Appends through an O_APPEND descriptor of its own: the end must be the file's, not what this mount remembers.
static void op_append(int side, int fd) {
    (void)fd;
    size_t length = 1 + draw(4096);
    if (model_len + length > length_max) return;
    fill(buffer, length);
    note(side, "append", model_len, length);
    int end = open(paths[side], O_WRONLY | O_APPEND);
    CHECK(end);
    ssize_t n = write(end, buffer, length);
    if (n != (ssize_t)length) fail("append took %zd of %zu bytes: %s", n, length, n < 0 ? strerror(errno) : "short");
    CHECK(close(end));
    size_t offset = model_len;
    grow_to(offset + length);
    memcpy(model + offset, buffer, length);
}

static void op_truncate(int side, int fd) {
    size_t length = draw(3) == 0 ? draw(4096) : draw(length_max + 1);
    note(side, "truncate", length, 0);
    CHECK(ftruncate(fd, length));
    grow_to(length);
    model_len = length;
}

static uint8_t *map(int fd, int protection, size_t offset, size_t length, size_t *lead) {
    size_t page = sysconf(_SC_PAGESIZE);
    *lead = offset % page;
    uint8_t *at = mmap(NULL, length + *lead, protection, MAP_SHARED, fd, offset - *lead);
    if (at == MAP_FAILED) fail("mmap: %s", strerror(errno));
    return at;
}

static void op_map_read(int side, int fd) {
    size_t offset, length, lead;
    if (!range_inside(&offset, &length)) return;
    note(side, "mapread", offset, length);
    uint8_t *at = map(fd, PROT_READ, offset, length, &lead);
    compare(at + lead, offset, length, "mapped read");
    CHECK(munmap(at, length + lead));
}

static void op_map_write(int side, int fd) {
    size_t offset, length, lead;
    if (!range_inside(&offset, &length)) return;
    fill(model + offset, length);
    note(side, "mapwrite", offset, length);
    uint8_t *at = map(fd, PROT_READ | PROT_WRITE, offset, length, &lead);
    memcpy(at + lead, model + offset, length);
    CHECK(msync(at, length + lead, MS_SYNC));
    CHECK(munmap(at, length + lead));
}

static int can_punch = 1;

static void op_punch(int side, int fd) {
    size_t offset, length;
    if (!can_punch || !range_inside(&offset, &length)) return;
    note(side, "punch", offset, length);
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length) < 0) {
        if (errno != EOPNOTSUPP) fail("punch: %s", strerror(errno));
        puts("punching holes is not supported here: left out");
        can_punch = 0;
        return;
    }
    memset(model + offset, 0, length);
}

static int can_allocate = 1;

static void op_allocate(int side, int fd) {
    size_t offset, length;
    if (!can_allocate) return;
    range_anywhere(&offset, &length);
    note(side, "allocate", offset, length);
    if (fallocate(fd, 0, offset, length) < 0) {
        if (errno != EOPNOTSUPP) fail("fallocate: %s", strerror(errno));
        puts("fallocate is not supported here: left out");
        can_allocate = 0;
        return;
    }
    grow_to(offset + length);
}

static void op_sync(int side, int fd) {
    note(side, "fsync", 0, 0);
    CHECK(fsync(fd));
}

// Replaces the file by a new one of the same name: a name must not lead to what was removed.
static void op_replace(int side, int fd) {
    (void)fd;
    note(side, "replace", 0, 0);
    CHECK(unlink(paths[side]));
    int fresh = open(paths[side], O_CREAT | O_EXCL | O_RDWR, 0644);
    CHECK(fresh);
    model_len = 0;
    CHECK(close(fresh));
}

typedef void (*operation)(int, int);
static const operation operations[] = {op_read,     op_read,     op_read_all, op_write,    op_write,   op_write,
                                       op_append,   op_truncate, op_map_read, op_map_read, op_map_write,
                                       op_map_write, op_punch,   op_allocate, op_sync};

int main(int argc, char **argv) {
    uint64_t count = 20000, seed = 1;
    for (int option; (option = getopt(argc, argv, "n:s:l:v")) != -1;) {
        switch (option) {
        case 'n': count = strtoull(optarg, NULL, 10); break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        case 'l': length_max = strtoull(optarg, NULL, 10); break;
        case 'v': verbose = 1; break;
        default: return 2;
        }
    }
    if (argc - optind != 2 || length_max == 0) {
        fputs("usage: two_mounts [-n OPERATIONS] [-s SEED] [-l LENGTH_MAX] [-v] PATH_A PATH_B\n", stderr);
        return 2;
    }
    paths[0] = argv[optind];
    paths[1] = argv[optind + 1];
    state = seed * 0x9e3779b97f4a7c15ULL + 1;
    model = calloc(1, length_max);
    buffer = malloc(length_max + 1 > WRITE_MAX ? length_max + 1 : WRITE_MAX);
    if (!model || !buffer) return 2;

    int fd = open(paths[0], O_CREAT | O_EXCL | O_RDWR, 0644);
    CHECK(fd);
    CHECK(close(fd));
    while (step < count) {
        int side = draw(2);
        turn++;
        if (draw(64) == 0) {
            op_replace(side, -1);
            side = draw(2);
            step++;
        }
        fd = open(paths[side], O_RDWR);
        CHECK(fd);
        check_size(fd);
        for (uint64_t n = 1 + draw(TURN_MAX); n > 0 && step < count; n--, step++)
            operations[draw(sizeof operations / sizeof *operations)](side, fd);
        check_size(fd);
        CHECK(close(fd));
    }
    for (int side = 0; side < 2; side++) {
        fd = open(paths[side], O_RDONLY);
        CHECK(fd);
        check_size(fd);
        op_read_all(side, fd);
        CHECK(close(fd));
    }
    CHECK(unlink(paths[1]));
    if (access(paths[0], F_OK) == 0 || errno != ENOENT) fail("still there after its removal: %s", paths[0]);
    printf("%llu operations in %llu turns ok\n", (unsigned long long)step, (unsigned long long)turn);
    return 0;
}
