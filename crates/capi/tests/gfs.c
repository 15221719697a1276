/* Galley's calls from C over a ShoalFS: each shape against single reads and writes, blocking and not, and what is wrong. */
#include <gfs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define IS(what)                                                                                                   \
  do {                                                                                                             \
    if (!(what)) {                                                                                                 \
      printf("line %d: %s: %s\n", __LINE__, #what, shoal_error_words());                                           \
      exit(1);                                                                                                     \
    }                                                                                                              \
  } while (0)
#define FAILS(call, number)                                                                                        \
  do {                                                                                                             \
    IS((call) == -1);                                                                                              \
    IS(gfs_errno == (number));                                                                                     \
  } while (0)

enum { LEN = 4096 };
static unsigned char model[LEN], memory[LEN], seen[LEN];

static void same(int fork) {
  IS(gfs_read(fork, seen, 0, LEN) == LEN);
  IS(memcmp(seen, model, LEN) == 0);
}

/* A record of the shape: its place in the fork and in memory. */
static void one(int64_t file, int64_t place, size_t size, int writes) {
  for (size_t i = 0; i < size; i++) {
    if (writes)
      model[file + (int64_t)i] = memory[place + (int64_t)i];
    else
      IS(memory[place + (int64_t)i] == model[file + (int64_t)i]);
  }
}

static void fill(unsigned seed) {
  for (int i = 0; i < LEN; i++) memory[i] = (unsigned char)((i * 7 + (int)seed * 31) ^ (i >> 5));
}

static void shapes(int fork) {
  fill(1);
  IS(gfs_write(fork, memory, 0, LEN) == LEN);
  memcpy(model, memory, LEN);
  same(fork);
  /* Strided: backwards in memory. */
  fill(2);
  IS(gfs_write_strided(fork, memory + 1000, 10, 8, 100, -16, 20) == 160);
  for (int i = 0; i < 20; i++) one(10 + 100 * i, 1000 - 16 * i, 8, 1);
  same(fork);
  memset(memory, 0, LEN);
  IS(gfs_read_strided(fork, memory, 10, 8, 100, 8, 20) == 160);
  for (int i = 0; i < 20; i++) one(10 + 100 * i, 8 * i, 8, 0);
  /* Nested, innermost first. */
  fill(3);
  struct gfs_stride levels[2] = {{16, 4, 5}, {300, 40, 6}};
  IS(gfs_write_nested(fork, memory, 3, 4, levels, 2) == 120);
  for (int o = 0; o < 6; o++)
    for (int i = 0; i < 5; i++) one(3 + 300 * o + 16 * i, 40 * o + 4 * i, 4, 1);
  same(fork);
  memset(memory, 0, LEN);
  IS(gfs_read_nested(fork, memory, 3, 4, levels, 2) == 120);
  for (int o = 0; o < 6; o++)
    for (int i = 0; i < 5; i++) one(3 + 300 * o + 16 * i, 40 * o + 4 * i, 4, 0);
  /* Batched: the same nest as a tree, the root outermost; then a plain node. */
  fill(4);
  struct gfs_batch inner = {0, 0, 0, 0, 0, 5, 16, 4, 0, {4}};
  struct gfs_batch roots[2] = {{3, 0, 0, 0, 1, 6, 300, 40, 1, {0}}, {2000, 2000, 1, 1, 0, 1, 0, 0, 0, {64}}};
  roots[0].body.vector = &inner;
  IS(gfs_write_batched(fork, memory, roots, 2) == 184);
  for (int o = 0; o < 6; o++)
    for (int i = 0; i < 5; i++) one(3 + 300 * o + 16 * i, 40 * o + 4 * i, 4, 1);
  one(2000, 2000, 64, 1);
  same(fork);
  memset(memory, 0, LEN);
  IS(gfs_read_batched(fork, memory, roots, 2) == 184);
  one(2000, 2000, 64, 0);
  /* A list, in any order, with memory that lies apart. */
  fill(5);
  struct gfs_list list[3] = {{3000, 100, 50}, {5, 900, 20}, {700, 0, 1}};
  IS(gfs_write_listio(fork, memory, list, 3) == 71);
  for (int i = 0; i < 3; i++) one((int64_t)list[i].file_offset, list[i].memory_offset, list[i].size, 1);
  same(fork);
  /* After the end nothing is moved. */
  memset(memory, 9, LEN);
  IS(gfs_read(fork, memory, LEN - 10, 100) == 10);
  one(LEN - 10, 0, 10, 0);
  IS(memory[10] == 9);
}

static const char *address, *key;

static void nonblocking(int fork) {
  gfs_handle handles[4];
  for (int i = 0; i < 4; i++) IS((handles[i] = gfs_new_handle()).id != 0);
  fill(6);
  for (int i = 0; i < 4; i++) IS(gfs_nb_write(handles[i], fork, memory + 1000 * i, (uint64_t)(1000 * i), 500) == 0);
  FAILS(gfs_nb_write(handles[0], fork, memory, 0, 1), GFS_EBUSY);
  FAILS(gfs_free_handle(handles[0]), GFS_EBUSY);
  /* They would go on with memory that is the caller's again. */
  FAILS(gfs_init(address, key), GFS_EBUSY);
  for (int i = 0; i < 4; i++) {
    int done;
    for (int tries = 0; (done = gfs_test(handles[i])) == 0 && tries < 10000; tries++) usleep(100);
    IS(done == 1);
    FAILS(gfs_nb_read(handles[i], fork, memory, 0, 1), GFS_EBUSY);
    FAILS(gfs_init(address, key), GFS_EBUSY);
    IS(gfs_wait(handles[i]) == 500);
    one(1000 * i, 1000 * i, 500, 1);
  }
  same(fork);
  memset(memory, 0, LEN);
  IS(gfs_nb_read_strided(handles[0], fork, memory, 0, 4, 64, 4, 50) == 0);
  IS(gfs_wait(handles[0]) == 200);
  for (int i = 0; i < 50; i++) one(64 * i, 4 * i, 4, 0);
  FAILS(gfs_wait(handles[0]), GFS_EINVAL);
  FAILS(gfs_test(handles[0]), GFS_EINVAL);
  for (int i = 0; i < 4; i++) IS(gfs_free_handle(handles[i]) == 0);
  FAILS(gfs_free_handle(handles[0]), GFS_EBADF);
}

static int shared_fork;
static void *thread(void *number) {
  unsigned char own[64];
  uint64_t at = 8192 + 64 * (uint64_t)(uintptr_t)number;
  memset(own, (int)(uintptr_t)number, sizeof own);
  IS(gfs_write(shared_fork, own, at, sizeof own) == sizeof own);
  memset(own, 0, sizeof own);
  IS(gfs_read(shared_fork, own, at, sizeof own) == sizeof own);
  IS(own[0] == (unsigned char)(uintptr_t)number && own[63] == own[0]);
  return NULL;
}

/* The words of a refused list name the limit, or the entry. */
static void lists(int fork) {
  struct gfs_list bad[3] = {{0, 0, 1}, {8, 8, 1}, {(uint64_t)INT64_MAX, 0, 2}};
  FAILS(gfs_write_listio(fork, memory, bad, 4194305), GFS_EINVAL);
  IS(strstr(shoal_error_words(), "4194305") && strstr(shoal_error_words(), "4194304"));
  FAILS(gfs_write_listio(fork, memory, bad, 3), GFS_EINVAL);
  IS(strstr(shoal_error_words(), "entry 2 of the list") && strstr(shoal_error_words(), "of the fork"));
  bad[1].memory_offset = INT64_MAX;
  FAILS(gfs_read_listio(fork, memory, bad, 3), GFS_EINVAL);
  IS(strstr(shoal_error_words(), "entry 1 of the list") && strstr(shoal_error_words(), "of memory"));
  FAILS(gfs_read_listio(fork, memory, bad, -5), GFS_EINVAL);
  IS(strstr(shoal_error_words(), "-5"));
  FAILS(gfs_read(fork, memory, 0, ((uint64_t)1 << 30) + 1), GFS_EINVAL);
  IS(strstr(shoal_error_words(), "1073741825") && strstr(shoal_error_words(), "1073741824"));
}

/* No name leads out of the file system. */
static void outside(shoal_fs fs) {
  FAILS(gfs_create_file("../x", NULL, 2), GFS_EXDEV);
  FAILS(gfs_open_file("../f"), GFS_EXDEV);
  FAILS(gfs_open_linear("d/../../f"), GFS_ENOENT);
  IS(shoal_mkdir(fs, "d", 0755) == 0 && shoal_symlink(fs, "../..", "d/up") == 0);
  FAILS(gfs_open_linear("d/../../f"), GFS_EXDEV);
  FAILS(gfs_open_file("d/up/f"), GFS_EXDEV);
  FAILS(gfs_delete_file("d/up/f"), GFS_EXDEV);
  IS(strstr(shoal_error_words(), "gfs_delete_file") && strstr(shoal_error_words(), "`d/up/f`"));
  int fid = gfs_open_file("d/../f");
  IS(fid >= 0 && gfs_close_file(fid) == 0);
  IS(shoal_unlink(fs, "d/up") == 0 && shoal_rmdir(fs, "d") == 0);
}

/* An error names the call, and the file and the fork by their names. */
static void words(int fid) {
  FAILS(gfs_create_file("f", NULL, 0), GFS_EEXIST);
  IS(strncmp(shoal_error_words(), "gfs_create_file", 15) == 0 && strstr(shoal_error_words(), " of `f`"));
  FAILS(gfs_open_fork(fid, 1, "none"), GFS_ENOENT);
  IS(strstr(shoal_error_words(), "the fork `none` of subfile 1 of `f`") != NULL);
  FAILS(gfs_all_delete(fid, "none"), GFS_ENOENT);
  IS(strstr(shoal_error_words(), "the fork `none` of subfile 0 of `f`") != NULL);
  FAILS(gfs_create_fork(fid, 9, "none"), GFS_EINVAL);
  IS(strstr(shoal_error_words(), "subfile 9") && strstr(shoal_error_words(), "`f`"));
}

int main(int argc, char **argv) {
  IS(argc == 3);
  address = argv[1], key = argv[2];
  FAILS(gfs_open_file("f"), GFS_EBADF);
  FAILS(gfs_init("nonsense", NULL), GFS_EINVAL);
  unsetenv("SHOAL_ADDRESS");
  FAILS(gfs_init(NULL, NULL), GFS_EINVAL);
  IS(gfs_init(argv[1], argv[2]) == 0);
  FAILS(gfs_create_file(NULL, NULL, 1), EFAULT);
  FAILS(gfs_create_file("f", NULL, -1), GFS_EINVAL);
  FAILS(gfs_create_file("f", NULL, 5000), GFS_EINVAL);
  int nowhere[1] = {77};
  FAILS(gfs_create_file("f", nowhere, 1), GFS_EINVAL);
  IS(gfs_create_file("f", NULL, 0) == 0);
  FAILS(gfs_create_file("f", NULL, 0), GFS_EEXIST);
  int fid = gfs_open_file("f");
  IS(fid >= 0);
  int subfiles = gfs_subfiles(fid);
  IS(subfiles == 2);
  FAILS(gfs_create_fork(fid, 2, "keys"), GFS_EINVAL);
  FAILS(gfs_create_fork(fid, 0, "a/b"), GFS_EINVAL);
  FAILS(gfs_open_fork(fid, 0, "keys"), GFS_ENOENT);
  IS(gfs_create_fork(fid, 0, "keys") == 0);
  FAILS(gfs_create_fork(fid, 0, "keys"), GFS_EEXIST);
  int fork_id = gfs_open_fork(fid, 0, "keys");
  IS(fork_id >= 0);
  IS(gfs_extend_fork(fork_id, LEN) == 0 && gfs_extend_fork(fork_id, 0) == 0);
  shapes(fork_id);
  words(fid);
  shoal_fs fs;
  IS(shoal_connect(address, key, &fs) == 0);
  outside(fs);
  IS(shoal_close(fs) == 0);
  nonblocking(fork_id);
  FAILS(gfs_read(fork_id, NULL, 0, 1), EFAULT);
  FAILS(gfs_write(fork_id, NULL, 0, 1), EFAULT);
  /* No byte needs no buffer. */
  IS(gfs_read(fork_id, NULL, 0, 0) == 0 && gfs_write(fork_id, NULL, 0, 0) == 0);
  IS(gfs_read_listio(fork_id, NULL, NULL, 0) == 0 && gfs_write_strided(fork_id, NULL, 0, 8, 8, 8, 0) == 0);
  lists(fork_id);
  FAILS(gfs_read(fork_id, memory, (uint64_t)1 << 63, 1), GFS_EINVAL);
  FAILS(gfs_read(fork_id, memory, 0, (uint64_t)1 << 62), GFS_EINVAL);
  FAILS(gfs_read(99, memory, 0, 1), GFS_EBADF);
  FAILS(gfs_read(-1, memory, 0, 1), GFS_EBADF);
  FAILS(gfs_read_nested(fork_id, memory, 0, 1, NULL, 1), EFAULT);
  FAILS(gfs_read_nested(fork_id, memory, 0, 1, NULL, -1), EINVAL);
  struct gfs_batch self = {0, 0, 0, 0, 1, 1, 0, 0, 1, {0}};
  self.body.vector = &self;
  FAILS(gfs_read_batched(fork_id, memory, &self, 1), EINVAL);
  static unsigned char block[GFS_BLOCK_BYTES];
  memset(block, 5, sizeof block);
  IS(gfs_write_block(fork_id, block, 2) == GFS_BLOCK_BYTES);
  memset(block, 0, sizeof block);
  IS(gfs_read_block(fork_id, block, 2) == GFS_BLOCK_BYTES && block[0] == 5);
  shared_fork = fork_id;
  pthread_t threads[16];
  for (uintptr_t i = 0; i < 16; i++) IS(pthread_create(&threads[i], NULL, thread, (void *)i) == 0);
  for (int i = 0; i < 16; i++) IS(pthread_join(threads[i], NULL) == 0);
  /* All subfiles at once. */
  int all[2];
  IS(gfs_all_create(fid, "power") == 0);
  IS(gfs_all_open(fid, all, "power") == 2);
  IS(gfs_write(all[1], "xyz", 0, 3) == 3 && gfs_read(all[0], memory, 0, 3) == 0);
  IS(gfs_flush_fork(all[1]) == 0 && gfs_flush_subfile(fid, 1) == 0 && gfs_flush_disk() == 0);
  IS(gfs_all_close(fid, all) == 0);
  IS(gfs_all_delete(fid, "power") == 0);
  /* A deleted fork goes on as long as it is open. */
  IS(gfs_delete_fork(fid, 0, "keys") == 0);
  IS(gfs_read(fork_id, memory, 0, 10) == 10);
  IS(gfs_close_fork(fork_id) == 0);
  FAILS(gfs_close_fork(fork_id), GFS_EBADF);
  /* A child has no Galley. */
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    FAILS(gfs_open_file("f"), GFS_EBADF);
    IS(gfs_init(argv[1], argv[2]) == 0);
    /* An id of the parent names nothing of the child. */
    IS(gfs_open_file("f") > fid);
    FAILS(gfs_subfiles(fid), GFS_EBADF);
    _exit(0);
  }
  int status;
  IS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  IS(gfs_close_file(fid) == 0);
  FAILS(gfs_close_file(fid), GFS_EBADF);
  /* All operations were waited for: it may begin again, with other ids. */
  fid = gfs_open_file("f");
  IS(gfs_create_fork(fid, 0, "again") == 0);
  fork_id = gfs_open_fork(fid, 0, "again");
  gfs_handle old = gfs_new_handle();
  IS(gfs_init(address, key) == 0);
  FAILS(gfs_close_file(fid), GFS_EBADF);
  int fresh = gfs_open_file("f");
  IS(fresh > fid && gfs_open_fork(fresh, 0, "again") > fork_id && gfs_new_handle().id > old.id);
  FAILS(gfs_subfiles(fid), GFS_EBADF);
  FAILS(gfs_read(fork_id, memory, 0, 1), GFS_EBADF);
  FAILS(gfs_free_handle(old), GFS_EBADF);
  IS(gfs_close_file(fresh) == 0);
  IS(gfs_delete_file("f") == 0);
  FAILS(gfs_open_file("f"), GFS_ENOENT);
  printf("gfs: ok\n");
  return 0;
}
