/* Each call of shoal.h, on the file system that the arguments name: WHERE [KEY]. Prints the line that fails. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shoal.h"

#define HOLDS(what)                                                                                       \
  do {                                                                                                    \
    if (!(what)) {                                                                                        \
      fprintf(stderr, "line %d: %s (errno %d; %s)\n", __LINE__, #what, errno, shoal_error_words());       \
      exit(1);                                                                                            \
    }                                                                                                     \
  } while (0)
#define FAILS(what, number)                                                                               \
  do {                                                                                                    \
    errno = 0;                                                                                            \
    HOLDS((what) == -1 && errno == (number));                                                             \
    HOLDS(shoal_error_number() == (number) && shoal_error_words()[0] != 0);                               \
  } while (0)

static const shoal_pattern packed = {0};
static shoal_fs fs;

static void names(void) {
  shoal_stat_t stat;
  shoal_entry entry;
  shoal_dir dir;
  char target[8] = {0};
  int seen = 0, more;
  HOLDS(shoal_mkdir(fs, "/names", 0755) == 0);
  FAILS(shoal_mkdir(fs, "names", 0755), EEXIST);
  FAILS(shoal_mkdir(fs, "/missing/names", 0755), ENOENT);
  HOLDS(shoal_stat(fs, "names", &stat) == 0 && S_ISDIR(stat.mode) && (stat.mode & 07777) == 0755);
  FAILS(shoal_stat(fs, "names/none", &stat), ENOENT);
  FAILS(shoal_stat(fs, NULL, &stat), EFAULT);
  FAILS(shoal_stat(fs, "names", NULL), EFAULT);
  FAILS(shoal_stat(fs, "..", &stat), EXDEV);
  HOLDS(shoal_symlink(fs, "names", "link") == 0);
  HOLDS(shoal_lstat(fs, "link", &stat) == 0 && S_ISLNK(stat.mode));
  HOLDS(shoal_stat(fs, "link", &stat) == 0 && S_ISDIR(stat.mode));
  HOLDS(shoal_readlink(fs, "link", target, 3) == 5 && memcmp(target, "nam\0", 4) == 0);
  FAILS(shoal_readlink(fs, "names", target, 3), EINVAL);
  HOLDS(shoal_mkdir(fs, "names/a", 0700) == 0 && shoal_mkdir(fs, "names/b", 0700) == 0);
  HOLDS(shoal_rename(fs, "names/a", "names/c") == 0);
  FAILS(shoal_rename(fs, "names/a", "names/c"), ENOENT);
  HOLDS(shoal_opendir(fs, "link", &dir) == 0);
  while ((more = shoal_readdir(dir, &entry)) == 1) {
    HOLDS(entry.name_len == strlen(entry.name) && S_ISDIR(entry.mode));
    seen += strcmp(entry.name, "b") == 0 || strcmp(entry.name, "c") == 0;
  }
  HOLDS(more == 0 && seen == 2);
  HOLDS(shoal_closedir(dir) == 0);
  FAILS(shoal_readdir(dir, &entry), EBADF);
  FAILS(shoal_rmdir(fs, "names"), ENOTEMPTY);
  HOLDS(shoal_rmdir(fs, "names/b") == 0 && shoal_rmdir(fs, "names/c") == 0);
  HOLDS(shoal_chmod(fs, "names", 0711) == 0);
  HOLDS(shoal_stat(fs, "names", &stat) == 0 && (stat.mode & 07777) == 0711);
  HOLDS(shoal_unlink(fs, "link") == 0 && shoal_rmdir(fs, "names") == 0);
  FAILS(shoal_rmdir(fs, "/"), EBUSY);
}

static void files(void) {
  shoal_file file, again;
  shoal_stat_t stat;
  char buffer[16] = {0};
  FAILS(shoal_open(fs, "file", O_RDWR, 0644, &file), ENOENT);
  FAILS(shoal_open(fs, "file", O_RDWR | O_DIRECTORY, 0644, &file), EINVAL);
  HOLDS(shoal_open(fs, "file", O_RDWR | O_CREAT | O_EXCL, 0640, &file) == 0);
  FAILS(shoal_open(fs, "file", O_RDWR | O_CREAT | O_EXCL, 0640, &again), EEXIST);
  FAILS(shoal_open(fs, "/", O_RDONLY, 0, &again), EISDIR);
  HOLDS(shoal_pwrite(file, "0123456789", 10, 0) == 10);
  HOLDS(shoal_append(file, "ab", 2) == 10);
  HOLDS(shoal_pread(file, buffer, 16, 2) == 10 && memcmp(buffer, "23456789ab", 10) == 0);
  HOLDS(shoal_pread(file, buffer, 16, 100) == 0);
  HOLDS(shoal_fsync(file) == 0 && shoal_sync(fs) == 0);
  HOLDS(shoal_fstat(file, &stat) == 0 && stat.size == 12 && S_ISREG(stat.mode));
  HOLDS(shoal_ftruncate(file, 4) == 0);
  HOLDS(shoal_pread(file, buffer, 16, 0) == 4);
  HOLDS(shoal_pread(file, NULL, 0, 0) == 0 && shoal_pwrite(file, NULL, 0, 0) == 0);
  FAILS(shoal_pread(file, NULL, 1, 0), EFAULT);
  FAILS(shoal_pwrite(file, NULL, 1, 0), EFAULT);
  FAILS(shoal_pread(file, buffer, (size_t)1 << 62, 0), EINVAL);
  FAILS(shoal_pwrite(file, buffer, (size_t)1 << 62, 0), EINVAL);
  FAILS(shoal_pwrite(file, buffer, 1, UINT64_MAX), EFBIG);
  HOLDS(shoal_close_file(file) == 0);
  FAILS(shoal_close_file(file), EBADF);
  FAILS(shoal_pread(file, buffer, 1, 0), EBADF);
  file.id = fs.id;
  FAILS(shoal_pread(file, buffer, 1, 0), EBADF);
  file.id = UINT64_MAX;
  FAILS(shoal_append(file, buffer, 1), EBADF);
  HOLDS(shoal_open(fs, "file", O_RDONLY, 0, &file) == 0);
  HOLDS(shoal_pwrite(file, "x", 1, 0) == -1);
  HOLDS(shoal_close_file(file) == 0);
  HOLDS(shoal_open(fs, "file", O_WRONLY | O_TRUNC, 0, &file) == 0 && shoal_close_file(file) == 0);
  HOLDS(shoal_stat(fs, "file", &stat) == 0 && stat.size == 0);
  HOLDS(shoal_unlink(fs, "file") == 0);
}

static void patterns(void) {
  shoal_file file;
  shoal_pattern odd, pairs, list, nest, tree, wild = {12345678};
  const shoal_level levels[2] = {{4, 2}, {8, 2}};
  const shoal_region regions[2] = {{6, 2}, {0, 2}};
  const shoal_branch leaf = {0, 4, 2, 1, NULL, 0, 0};
  shoal_branch round = {0, 4, 2, 0, NULL, 1, 0};
  const shoal_branch root = {1, 8, 2, 0, &leaf, 1, 0};
  char buffer[16] = {0};
  HOLDS(shoal_open(fs, "shape", O_RDWR | O_CREAT, 0644, &file) == 0);
  HOLDS(shoal_pwrite(file, "abcdefghijklmnop", 16, 0) == 16);
  HOLDS(shoal_pattern_strided(1, 1, 2, 8, &odd) == 0 && shoal_pattern_len(odd) == 8);
  HOLDS(shoal_read_pattern(file, odd, buffer, 8, packed) == 8 && memcmp(buffer, "bdfhjlnp", 8) == 0);
  HOLDS(shoal_pattern_strided(0, 2, 4, 4, &pairs) == 0);
  memset(buffer, '.', 16);
  HOLDS(shoal_read_pattern(file, odd, buffer, 16, pairs) == 8 && memcmp(buffer, "bd..fh..jl..np..", 16) == 0);
  HOLDS(shoal_write_pattern(file, odd, "ABxxCDxxEFxxGHxx", 16, pairs) == 8);
  HOLDS(shoal_pread(file, buffer, 16, 0) == 16 && memcmp(buffer, "aAcBeCgDiEkFmGoH", 16) == 0);
  HOLDS(shoal_pattern_list(regions, 2, &list) == 0);
  HOLDS(shoal_read_pattern(file, list, buffer, 4, packed) == 4 && memcmp(buffer, "gDaA", 4) == 0);
  HOLDS(shoal_pattern_nested(0, 1, levels, 2, &nest) == 0);
  HOLDS(shoal_read_pattern(file, nest, buffer, 4, packed) == 4 && memcmp(buffer, "aeim", 4) == 0);
  HOLDS(shoal_pattern_batched(&root, 1, &tree) == 0);
  HOLDS(shoal_read_pattern(file, tree, buffer, 4, packed) == 4 && memcmp(buffer, "ACEG", 4) == 0);
  round.vector = &round;
  FAILS(shoal_pattern_batched(&round, 1, &tree), EINVAL);
  FAILS(shoal_read_pattern(file, odd, buffer, 4, packed), EINVAL);
  FAILS(shoal_read_pattern(file, odd, buffer, 16, list), EINVAL);
  FAILS(shoal_write_pattern(file, wild, buffer, 16, packed), EBADF);
  HOLDS(shoal_pattern_contiguous(0, (uint64_t)1 << 62, &nest) == 0);
  FAILS(shoal_read_pattern(file, nest, buffer, 16, packed), EINVAL);
  HOLDS(shoal_pattern_contiguous(-4, 4, &nest) == 0);
  FAILS(shoal_write_pattern(file, nest, "abcd", 4, packed), EINVAL);
  HOLDS(shoal_pattern_free(odd) == 0);
  FAILS(shoal_pattern_free(odd), EBADF);
  HOLDS(shoal_close_file(file) == 0 && shoal_unlink(fs, "shape") == 0);
}

enum { MANY = 300, LEN = 64 };
static void batches(void) {
  static char paths[MANY][32], data[MANY][LEN], back[MANY][LEN];
  static shoal_create_entry creates[MANY];
  static shoal_read_entry reads[MANY];
  shoal_stat_t stat;
  int at;
  HOLDS(shoal_mkdir(fs, "many", 0755) == 0 && shoal_mkdir(fs, "many/b", 0755) == 0);
  for (at = 0; at < MANY; at++) {
    snprintf(paths[at], sizeof paths[at], at % 2 ? "/many/b/%d" : "many/%d", at);
    memset(data[at], 'a' + at % 26, LEN);
    creates[at] = (shoal_create_entry){paths[at], data[at], (size_t)(at % LEN), 77, 77};
    reads[at] = (shoal_read_entry){paths[at], back[at], LEN, 77, 77, 77};
  }
  HOLDS(shoal_create_many(fs, creates, MANY, 0640) == MANY);
  for (at = 0; at < MANY; at++) HOLDS(creates[at].error == 0 && creates[at].done == at % LEN);
  HOLDS(shoal_stat(fs, paths[7], &stat) == 0 && stat.size == 7 && (stat.mode & 07777) == 0640);
  HOLDS(shoal_read_many(fs, reads, MANY) == MANY);
  for (at = 0; at < MANY; at++) {
    HOLDS(reads[at].error == 0 && reads[at].done == at % LEN && reads[at].size == (uint64_t)(at % LEN));
    HOLDS(memcmp(back[at], data[at], (size_t)(at % LEN)) == 0 && back[at][LEN - 1] == 0);
  }
  /* A link is followed; each failure is its own entry's, and the first one's words stay. */
  HOLDS(shoal_symlink(fs, "b/63", "many/link") == 0 && shoal_symlink(fs, "none", "many/loose") == 0);
  for (at = 0; at < 12; at++) reads[at] = (shoal_read_entry){paths[40 + at], back[at], LEN, 77, 77, 77};
  reads[1].path = "many/none";
  reads[2].path = "none/at/all";
  reads[3].path = NULL;
  reads[4].buffer = NULL;
  reads[5].len = (size_t)1 << 62;
  reads[6].path = "many/b";
  reads[7].path = "many/link";
  reads[8].path = "many/loose";
  reads[9].len = 48;
  reads[10].path = "../many/40";
  reads[11] = (shoal_read_entry){paths[0], NULL, 0, 77, 77, 77};
  errno = 0;
  HOLDS(shoal_read_many(fs, reads, 12) == 3 && errno == 0);
  HOLDS(reads[0].done == 40 && reads[0].error == 0);
  HOLDS(reads[1].error == ENOENT && reads[1].done == -1);
  HOLDS(reads[2].error == ENOENT && reads[3].error == EFAULT && reads[4].error == EFAULT);
  HOLDS(reads[5].error == EINVAL && reads[6].error == EISDIR);
  HOLDS(reads[7].error == 0 && reads[7].done == 63 && reads[7].size == 63 && back[7][0] == 'a' + 63 % 26);
  HOLDS(reads[8].error == ENOENT);
  HOLDS(reads[9].error == ERANGE && reads[9].done == -1 && reads[9].size == 49);
  HOLDS(reads[10].error == EXDEV);
  HOLDS(reads[11].error == 0 && reads[11].done == 0 && reads[11].size == 0);
  HOLDS(shoal_error_number() == ENOENT && strstr(shoal_error_words(), "entry 1, `many/none`") != NULL);
  for (at = 0; at < 7; at++) creates[at] = (shoal_create_entry){"many/new", "abc", 3, 77, 77};
  creates[1].path = paths[0];
  creates[2].path = "";
  creates[3].path = "many/new/";
  creates[4].data = NULL;
  creates[5].len = (size_t)1 << 62;
  creates[6] = (shoal_create_entry){"many/empty", NULL, 0, 77, 77};
  HOLDS(shoal_create_many(fs, creates, 7, 0600) == 2);
  HOLDS(creates[0].error == 0 && creates[0].done == 3 && creates[1].error == EEXIST && creates[2].error == ENOENT);
  HOLDS(creates[3].error == EISDIR && creates[4].error == EFAULT && creates[5].error == EINVAL);
  HOLDS(creates[6].error == 0 && creates[6].done == 0);
  HOLDS(shoal_error_number() == EEXIST && strstr(shoal_error_words(), "`many/0`") != NULL);
  /* The call as a whole. */
  HOLDS(shoal_read_many(fs, NULL, 0) == 0 && shoal_create_many(fs, NULL, 0, 0600) == 0);
  FAILS(shoal_read_many(fs, NULL, 1), EFAULT);
  FAILS(shoal_create_many(fs, NULL, 1, 0600), EFAULT);
  reads[0].done = 55;
  FAILS(shoal_read_many(fs, reads, (size_t)1 << 62), EINVAL);
  FAILS(shoal_create_many(fs, creates, (1 << 20) + 1, 0600), EINVAL);
  FAILS(shoal_read_many((shoal_fs){0}, reads, 12), EBADF);
  HOLDS(reads[0].done == 55);
  /* A deadline that has passed leaves no entry without a result. */
  shoal_set_thread_timeout(0);
  HOLDS(shoal_read_many(fs, reads, 1) == 0 && reads[0].error == ETIMEDOUT && reads[0].done == -1);
  shoal_set_thread_timeout(-1);
  for (at = 0; at < MANY; at++) HOLDS(shoal_unlink(fs, paths[at]) == 0);
  HOLDS(shoal_unlink(fs, "many/new") == 0 && shoal_unlink(fs, "many/empty") == 0);
  HOLDS(shoal_unlink(fs, "many/link") == 0 && shoal_unlink(fs, "many/loose") == 0);
  HOLDS(shoal_rmdir(fs, "many/b") == 0 && shoal_rmdir(fs, "many") == 0);
}

/* An error names the call and the path as the caller gave it, and no object by its number. */
static void words(void) {
  shoal_file file;
  shoal_pattern before;
  FAILS(shoal_mkdir(fs, "/none/names", 0755), ENOENT);
  HOLDS(strncmp(shoal_error_words(), "shoal_mkdir", 11) == 0 && strstr(shoal_error_words(), "`/none/names`"));
  HOLDS(shoal_mkdir(fs, "words", 0755) == 0 && shoal_mkdir(fs, "words/in", 0755) == 0);
  FAILS(shoal_rmdir(fs, "words"), ENOTEMPTY);
  HOLDS(strncmp(shoal_error_words(), "shoal_rmdir: rmdir of `words`", 29) == 0);
  HOLDS(strstr(shoal_error_words(), ": directory not empty") != NULL);
  FAILS(shoal_rename(fs, "words", "words/in/it"), EINVAL);
  HOLDS(strstr(shoal_error_words(), "`words` and `words/in/it`") != NULL);
  HOLDS(shoal_open(fs, "words/f", O_RDWR | O_CREAT, 0644, &file) == 0);
  HOLDS(shoal_pattern_contiguous(-4, 1, &before) == 0);
  FAILS(shoal_write_pattern(file, before, "x", 1, packed), EINVAL);
  HOLDS(strncmp(shoal_error_words(), "shoal_write_pattern", 19) == 0);
  HOLDS(strstr(shoal_error_words(), " of `words/f`") != NULL);
  {
    const shoal_region regions[2] = {{0, 1}, {INT64_MAX, 2}};
    FAILS(shoal_pattern_list(regions, 2, &before), EINVAL);
    HOLDS(strstr(shoal_error_words(), "entry 1 of the list") != NULL);
  }
  HOLDS(shoal_close_file(file) == 0 && shoal_unlink(fs, "words/f") == 0);
  HOLDS(shoal_rmdir(fs, "words/in") == 0 && shoal_rmdir(fs, "words") == 0);
}

#define THREADS 64
static shoal_file shared;
static void *writer(void *argument) {
  const int number = (int)(intptr_t)argument;
  char record[32], back[32];
  int round;
  for (round = 0; round < 8; round++) {
    const uint64_t offset = (uint64_t)(round * THREADS + number) * sizeof record;
    memset(record, 'A' + (number + round) % 26, sizeof record);
    HOLDS(shoal_pwrite(shared, record, sizeof record, offset) == (int64_t)sizeof record);
    HOLDS(shoal_pread(shared, back, sizeof back, offset) == (int64_t)sizeof back);
    HOLDS(memcmp(record, back, sizeof back) == 0);
  }
  return NULL;
}
static void threads(void) {
  pthread_t all[THREADS];
  shoal_stat_t stat;
  int at;
  HOLDS(shoal_open(fs, "shared", O_RDWR | O_CREAT, 0644, &shared) == 0);
  for (at = 0; at < THREADS; at++) HOLDS(pthread_create(&all[at], NULL, writer, (void *)(intptr_t)at) == 0);
  for (at = 0; at < THREADS; at++) HOLDS(pthread_join(all[at], NULL) == 0);
  HOLDS(shoal_fstat(shared, &stat) == 0 && stat.size == 8 * THREADS * 32);
}

/* A thread that is cancelled while it is in a call: the call ends first. */
static int was_done;
static void *cancelled(void *argument) {
  shoal_stat_t stat;
  (void)argument;
  pthread_cancel(pthread_self());
  HOLDS(shoal_stat(fs, "shared", &stat) == 0 && stat.size == 8 * THREADS * 32);
  was_done = 1;
  pthread_testcancel();
  return NULL;
}
static void cancels(void) {
  pthread_t thread;
  void *result = NULL;
  HOLDS(pthread_create(&thread, NULL, cancelled, NULL) == 0 && pthread_join(thread, &result) == 0);
  HOLDS(was_done == 1 && result == PTHREAD_CANCELED);
}

/* Children that fork while other threads use the tables: each connects and makes a pattern. */
static volatile int is_over;
static void *user(void *argument) {
  while (!is_over) {
    shoal_pattern pattern;
    shoal_stat_t stat;
    HOLDS(shoal_pattern_contiguous(0, 8, &pattern) == 0 && shoal_pattern_free(pattern) == 0);
    shoal_fstat(*(shoal_file *)argument, &stat);
  }
  return NULL;
}
static void forks(void) {
  shoal_file none = {0};
  pthread_t users[4];
  int at, status;
  for (at = 0; at < 4; at++) HOLDS(pthread_create(&users[at], NULL, user, &none) == 0);
  for (at = 0; at < 200; at++) {
    const pid_t pid = fork();
    if (pid == 0) {
      shoal_pattern pattern;
      alarm(20);
      HOLDS(shoal_pattern_contiguous(0, 8, &pattern) == 0 && shoal_pattern_free(pattern) == 0);
      _exit(0);
    }
    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
  }
  is_over = 1;
  for (at = 0; at < 4; at++) HOLDS(pthread_join(users[at], NULL) == 0);
}

static void child(const char *where, const char *key) {
  int status = 1;
  const pid_t pid = fork();
  if (pid == 0) {
    shoal_fs own;
    shoal_stat_t stat;
    FAILS(shoal_fstat(shared, &stat), EBADF);
    HOLDS(shoal_connect(where, key, &own) == 0);
    HOLDS(shoal_stat(own, "shared", &stat) == 0);
    HOLDS(shoal_close(own) == 0);
    _exit(0);
  }
  HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int count, char **arguments) {
  const char *where = count > 1 ? arguments[1] : NULL, *key = count > 2 ? arguments[2] : NULL;
  shoal_stat_t stat;
  FAILS(shoal_connect(NULL, NULL, &fs), EFAULT);
  FAILS(shoal_connect(where, key, NULL), EFAULT);
  HOLDS(shoal_connect("/none=container", NULL, &fs) == -1 && strstr(shoal_error_words(), "/none") != NULL);
  FAILS(shoal_connect("/tmp=unheard", NULL, &fs), EINVAL);
  HOLDS(shoal_connect(where, key, &fs) == 0);
  names();
  files();
  patterns();
  batches();
  words();
  threads();
  cancels();

  forks();
  child(where, key);
  FAILS(shoal_set_timeout(fs, -1), EINVAL);
  HOLDS(shoal_set_timeout(fs, 60000) == 0);
  HOLDS(shoal_close(fs) == 0);
  FAILS(shoal_close(fs), EBADF);
  FAILS(shoal_stat(fs, "/", &stat), EBADF);
  FAILS(shoal_fstat(shared, &stat), EBADF);
  HOLDS(shoal_connect(where, key, &fs) == 0 && shoal_unlink(fs, "shared") == 0 && shoal_close(fs) == 0);
  puts("calls: ok");
  return 0;
}
