/* A server that stops, goes on, and ends: WHERE KEY. Says `ready`, and at each line of its input makes the next call. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <shoal.h>

int main(int count, char **arguments) {
  char line[16];
  shoal_fs fs;
  shoal_file file;
  if (count < 3 || shoal_connect(arguments[1], arguments[2], &fs) != 0) return 1;
  if (shoal_open(fs, "gone", O_RDWR | O_CREAT, 0644, &file) != 0) return 1;
  shoal_set_thread_timeout(1000);
  puts("ready");
  while (fflush(stdout), fgets(line, sizeof line, stdin)) {
    errno = 0;
    if (shoal_pwrite(file, "x", 1, 0) == 1)
      puts("written");
    else
      printf("%s: %s\n", errno == ETIMEDOUT ? "ETIMEDOUT" : strerror(errno), shoal_error_words());
  }
  return 0;
}
