/* Threads on one connection, beside a server that is stopped: WHERE KEY. Says `ready`, and at a line of its input each thread writes to a
 * file of its own. Says how many wrote before the first call failed, how many after it, and how many met their deadline. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include <shoal.h>

enum { FILES = 16, TIMEOUT_MS = 5000 };
static shoal_file files[FILES];
static atomic_int early, late, timed_out;

static void *writes(void *argument) {
  shoal_set_thread_timeout(TIMEOUT_MS);
  if (shoal_pwrite(*(shoal_file *)argument, "x", 1, 0) == 1)
    atomic_fetch_add(atomic_load(&timed_out) == 0 ? &early : &late, 1);
  else if (errno == ETIMEDOUT)
    atomic_fetch_add(&timed_out, 1);
  else
    printf("%s\n", shoal_error_words());
  return NULL;
}

int main(int count, char **arguments) {
  char path[32];
  shoal_fs fs;
  pthread_t threads[FILES];
  if (count < 3 || shoal_connect(arguments[1], arguments[2], &fs) != 0) return 1;
  for (int n = 0; n < FILES; n++) {
    snprintf(path, sizeof path, "beside.%d", n);
    if (shoal_mkdir(fs, path, 0755) != 0) return 1;
    snprintf(path, sizeof path, "beside.%d/file", n);
    if (shoal_open(fs, path, O_RDWR | O_CREAT, 0644, &files[n]) != 0 || shoal_pwrite(files[n], "y", 1, 0) != 1) return 1;
  }
  puts("ready");
  fflush(stdout);
  if (getchar() == EOF) return 1;
  for (int n = 0; n < FILES; n++) pthread_create(&threads[n], NULL, writes, &files[n]);
  for (int n = 0; n < FILES; n++) pthread_join(threads[n], NULL);
  printf("%d early, %d late, %d timed out\n", early, late, timed_out);
  return 0;
}
