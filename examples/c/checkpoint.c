/* A strided checkpoint: each rank writes its columns of a matrix, all rows by one call, into one file.
 *
 *     cc checkpoint.c $(pkg-config --cflags --libs shoal) -o checkpoint
 *     ./checkpoint /home/me/ckpt=container            or: ./checkpoint shoal://HOST:PORT/NAME KEY */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shoal.h>

enum { RANKS = 4, ROWS = 256, COLUMN = 64, ROW = RANKS * COLUMN };

static void check(int64_t done, const char *call) {
  if (done >= 0) return;
  fprintf(stderr, "%s: %s\n", call, shoal_error_words());
  exit(1);
}

int main(int count, char **arguments) {
  static unsigned char part[ROWS * COLUMN], whole[ROWS * ROW];
  const shoal_pattern packed = {0};
  shoal_fs fs;
  shoal_file file;
  int rank, at;
  if (count < 2) {
    fprintf(stderr, "usage: checkpoint WHERE [KEY]\n");
    return 2;
  }
  check(shoal_connect(arguments[1], count > 2 ? arguments[2] : NULL, &fs), "connect");
  check(shoal_open(fs, "checkpoint", O_RDWR | O_CREAT | O_TRUNC, 0644, &file), "open");
  for (rank = 0; rank < RANKS; rank++) {
    shoal_pattern columns;
    memset(part, 'a' + rank, sizeof part);
    check(shoal_pattern_strided(rank * COLUMN, COLUMN, ROW, ROWS, &columns), "pattern");
    check(shoal_write_pattern(file, columns, part, sizeof part, packed), "write");
    check(shoal_pattern_free(columns), "free");
  }
  check(shoal_fsync(file), "fsync");
  check(shoal_pread(file, whole, sizeof whole, 0), "read");
  for (at = 0; at < ROWS * ROW; at++) {
    if (whole[at] != 'a' + at % ROW / COLUMN) {
      fprintf(stderr, "byte %d is wrong\n", at);
      return 1;
    }
  }
  check(shoal_close_file(file), "close");
  check(shoal_close(fs), "close");
  printf("checkpoint: %d ranks, %d bytes\n", RANKS, ROWS * ROW);
  return 0;
}
