// A flood of small files by plain POSIX calls: each rank writes its own into one directory; another number of ranks reads all.
//
//     mpiexec -n N flood write|read|both DIR [files=128] [bytes=8192] [writers=N]
//
// File K of writer W is DIR/W.K, with `bytes` and some more that differ from file to file. A reader takes each Nth of all files, so of
// all writers, and verifies names, sizes and each byte. Rank 0 prints the seconds between the barriers around the phase.
#include "common.h"
#include <dirent.h>

static const char *directory;
static long files = 128, bytes = 8192, writers = 0;

static long length_of(long writer, long file) { return bytes + (writer * 31 + file * 17) % 97; }

static void name_of(char *name, size_t room, long writer, long file) { snprintf(name, room, "%s/%ld.%ld", directory, writer, file); }

static void write_all(unsigned char *memory) {
  char name[4096];
  for (long file = 0; file < files; file++) {
    long length = length_of(rank, file);
    contents(memory, length, rank * files + file, 0);
    name_of(name, sizeof name, rank, file);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0) fail("make %s", name);
    if (write(fd, memory, length) != length) fail("write %s", name);
    if (close(fd) != 0) fail("close %s", name);
  }
}

static void read_all(unsigned char *memory) {
  char name[4096];
  struct stat st;
  for (long at = rank; at < writers * files; at += size) {
    long writer = at % writers, file = at / writers, length = length_of(writer, file);
    name_of(name, sizeof name, writer, file);
    int fd = open(name, O_RDONLY);
    if (fd < 0) fail("open %s", name);
    if (fstat(fd, &st) != 0) fail("fstat %s", name);
    errno = 0;
    if (st.st_size != length) fail("%s has %lld bytes, not %ld", name, (long long)st.st_size, length);
    if (read(fd, memory, length + 1) != length) fail("read %s", name);
    verify(memory, length, writer * files + file, 0, name);
    if (close(fd) != 0) fail("close %s", name);
  }
}

static void list_all(void) {
  DIR *stream = opendir(directory);
  long found = 0;
  if (stream == NULL) fail("opendir %s", directory);
  errno = 0;
  for (struct dirent *entry; (entry = readdir(stream)) != NULL;) found += entry->d_name[0] != '.';
  if (errno != 0) fail("readdir %s", directory);
  closedir(stream);
  if (found != writers * files) fail("%s lists %ld files, not %ld", directory, found, writers * files);
}

static void phase(int is_write) {
  unsigned char *memory = malloc(bytes + 128);
  if (memory == NULL) fail("memory");
  barrier();
  double start = now();
  (is_write ? write_all : read_all)(memory);
  double mine = now() - start;
  barrier();
  double seconds = largest(mine);
  if (!is_write) list_all();
  barrier();
  free(memory);
  if (rank == 0) printf("%s flood ranks %d files %ld seconds %.6f\n", is_write ? "write" : "read", size, writers * files, seconds);
}

int main(int count, char **words) {
  begin(&count, &words);
  if (count < 3) fail("usage: flood write|read|both DIR [files=N] [bytes=N] [writers=N]");
  directory = words[2];
  for (int at = 3; at < count; at++) {
    char *value = strchr(words[at], '=');
    if (value == NULL) fail("no such word: %s", words[at]);
    long given = number(value + 1);
    if (strncmp(words[at], "files=", 6) == 0)
      files = given;
    else if (strncmp(words[at], "bytes=", 6) == 0)
      bytes = given;
    else if (strncmp(words[at], "writers=", 8) == 0)
      writers = given;
    else
      fail("no such option: %s", words[at]);
  }
  int is_write = strcmp(words[1], "read") != 0, is_read = strcmp(words[1], "write") != 0;
  if (is_write && is_read && strcmp(words[1], "both") != 0) fail("write, read or both, not %s", words[1]);
  if (writers == 0 || is_write) writers = size;
  if (is_write && mkdir(directory, 0755) != 0 && errno != EEXIST) fail("mkdir %s", directory);
  if (is_write) phase(1);
  if (is_read) phase(0);
  MPI_Finalize();
  return 0;
}
