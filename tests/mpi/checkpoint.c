// A checkpoint by plain POSIX calls: all ranks write one file, or each its own; other numbers of ranks read and verify each byte.
//
//     mpiexec -n N checkpoint write|read|both FILE [shared|own] [OPTION=VALUE...]
//
//     record=47008         bytes of a record
//     records=64           records of the whole job
//     writers=N            ranks that wrote (`own`: as many files FILE.W)
//     order=strided|parts  which records a rank reads (and in `shared` writes): each Nth, or N contiguous parts
//     calls=seek|place     `lseek` and `write` as IOR, or `pwrite` as MADbench
//     sync=0|1             fsync before close
//
// Opened O_RDWR for writing, as IOR and MADbench do: rank 0 makes and cuts the file, the others open it. Rank 0 prints the seconds
// between the barriers around open, transfers and close, as the slowest rank saw them.
#include "common.h"

static const char *path, *order = "strided", *calls = "seek";
static long record = 47008, records = 64, writers = 0, is_own = 0, is_synced = 1;
static unsigned char *memory;
static long own_records;

// `count` parties share the records; this is the number of those of `party`.
static long share(long party, long count) {
  if (strcmp(order, "parts") == 0) return records * (party + 1) / count - records * party / count;
  return records / count + (party < records % count);
}

static long nth(long party, long count, long at) {
  return strcmp(order, "parts") == 0 ? records * party / count + at : at * count + party;
}

static void transfer(int fd, int is_write, unsigned char *bytes, off_t offset) {
  long done = 0;
  if (calls[0] == 's' && lseek(fd, offset, SEEK_SET) != offset) fail("lseek %s to %lld", path, (long long)offset);
  while (done < record) {
    ssize_t moved;
    if (calls[0] == 's')
      moved = is_write ? write(fd, bytes + done, record - done) : read(fd, bytes + done, record - done);
    else
      moved = is_write ? pwrite(fd, bytes + done, record - done, offset + done) : pread(fd, bytes + done, record - done, offset + done);
    if (moved <= 0) fail("%s of %s at %lld: %zd of %ld bytes", is_write ? "write" : "read", path, (long long)offset, moved, record - done);
    done += moved;
  }
}

static int opened(const char *name, int flags) {
  int fd = open(name, flags, 0644);
  if (fd < 0) fail("open %s", name);
  return fd;
}

static void closed(int fd, int is_write, const char *name) {
  if (is_write && is_synced && fsync(fd) != 0) fail("fsync %s", name);
  if (close(fd) != 0) fail("close %s", name);
}

// A file that must have this length.
static void long_as(int fd, long count, const char *name) {
  struct stat st;
  if (fstat(fd, &st) != 0) fail("fstat %s", name);
  errno = 0;
  if (st.st_size != (off_t)(count * record)) fail("%s has %lld bytes, not %lld", name, (long long)st.st_size, (long long)count * record);
}

// All files of the writers with numbers rank, rank + N, …: each holds its writer's records one after the other.
static void own_files(int is_write) {
  unsigned char *bytes = memory;
  for (long file = rank; file < writers; file += size) {
    char name[4096];
    snprintf(name, sizeof name, "%s.%ld", path, file);
    int fd = opened(name, is_write ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY);
    long count = share(file, writers);
    if (!is_write) long_as(fd, count, name);
    for (long at = 0; at < count; at++, bytes += record) transfer(fd, is_write, bytes, (off_t)at * record);
    closed(fd, is_write, name);
  }
}

static void shared_file(int is_write) {
  int fd;
  if (!is_write) {
    fd = opened(path, O_RDONLY);
    long_as(fd, records, path);
  } else if (rank == 0) {
    fd = opened(path, O_RDWR | O_CREAT | O_TRUNC);
    barrier();
  } else {
    barrier();
    fd = opened(path, O_RDWR | O_CREAT);
  }
  for (long at = 0; at < own_records; at++) transfer(fd, is_write, memory + at * record, (off_t)nth(rank, size, at) * record);
  closed(fd, is_write, path);
}

// Calls `each` for all records of this rank in the order of memory.
static void each_record(void (*each)(unsigned char *, long)) {
  unsigned char *bytes = memory;
  if (!is_own) {
    for (long at = 0; at < own_records; at++, bytes += record) each(bytes, nth(rank, size, at));
    return;
  }
  for (long file = rank; file < writers; file += size)
    for (long at = 0; at < share(file, writers); at++, bytes += record) each(bytes, nth(file, writers, at));
}

static void make(unsigned char *bytes, long which) { contents(bytes, record, 0, (uint64_t)which * record); }
static void check(unsigned char *bytes, long which) { verify(bytes, record, 0, (uint64_t)which * record, path); }

static void phase(int is_write) {
  long file;
  if (is_own)
    for (own_records = 0, file = rank; file < writers; file += size) own_records += share(file, writers);
  else
    own_records = share(rank, size);
  memory = malloc(own_records * record + 1);
  if (memory == NULL) fail("%ld records in memory", own_records);
  if (is_write)
    each_record(make);
  else
    memset(memory, 0xEE, own_records * record);
  barrier();
  double start = now();
  (is_own ? own_files : shared_file)(is_write);
  double mine = now() - start;
  barrier();
  double seconds = largest(mine);
  if (!is_write) each_record(check);
  barrier();
  free(memory);
  if (rank == 0)
    printf("%s %s ranks %d bytes %lld seconds %.6f\n", is_write ? "write" : "read", is_own ? "own" : "shared", size,
           (long long)records * record, seconds);
}

int main(int count, char **words) {
  begin(&count, &words);
  if (count < 3) fail("usage: checkpoint write|read|both FILE [shared|own] [OPTION=VALUE...]");
  path = words[2];
  for (int at = 3; at < count; at++) {
    char *value = strchr(words[at], '=');
    if (strcmp(words[at], "shared") == 0 || strcmp(words[at], "own") == 0)
      is_own = words[at][0] == 'o';
    else if (value == NULL)
      fail("no such word: %s", words[at]);
    else if (strncmp(words[at], "record=", 7) == 0)
      record = number(value + 1);
    else if (strncmp(words[at], "records=", 8) == 0)
      records = number(value + 1);
    else if (strncmp(words[at], "writers=", 8) == 0)
      writers = number(value + 1);
    else if (strncmp(words[at], "sync=", 5) == 0)
      is_synced = number(value + 1);
    else if (strcmp(words[at], "order=strided") == 0 || strcmp(words[at], "order=parts") == 0)
      order = value + 1;
    else if (strcmp(words[at], "calls=seek") == 0 || strcmp(words[at], "calls=place") == 0)
      calls = value + 1;
    else
      fail("no such option: %s", words[at]);
  }
  int is_write = strcmp(words[1], "read") != 0, is_read = strcmp(words[1], "write") != 0;
  if (is_write && is_read && strcmp(words[1], "both") != 0) fail("write, read or both, not %s", words[1]);
  if (record == 0) fail("a record has bytes");
  if (writers == 0 || is_write) writers = size;
  if (is_write) phase(1);
  if (is_read) phase(0);
  MPI_Finalize();
  return 0;
}
