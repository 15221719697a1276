/* The transpose of a matrix that is larger than the memory given to it, on a forked file.
 *
 *     cc transpose.c $(pkg-config --cflags --libs shoal) -o transpose
 *     ./transpose shoal://HOST:PORT/NAME KEY [N]
 *
 * Fork `a` of subfile s has the rows s*N/P to (s+1)*N/P of the matrix, fork `t` those of its transpose. A panel is W
 * columns of all rows: one strided request to each subfile, all servers at once, each of which reads its blocks once
 * and whole. A panel turned is W rows of the transpose, which lie in one subfile.
 *
 * Beside it the same panels are read from an ordinary striped file, a read for each row, as a program without
 * structured requests does. */
#include "example.h"

enum { SUBFILES_MAX = 64 };

static double value(int n, int row, int column) { return (double)row * n + column; }

static void turn(const double *panel, double *turned, int n, int w) {
  int row, column;
  for (row = 0; row < n; row++)
    for (column = 0; column < w; column++) turned[(size_t)column * n + row] = panel[(size_t)row * w + column];
}

int main(int count, char **arguments) {
  int n = count > 3 ? atoi(arguments[3]) : 512;
  int a[SUBFILES_MAX], t[SUBFILES_MAX], file, parts, striped, rows, w, row, column, part, first;
  gfs_handle handles[SUBFILES_MAX];
  double *panel, *turned, began, structured = 0, single = 0;
  uint64_t row_bytes, record;
  if (count < 3) {
    fprintf(stderr, "usage: transpose ADDRESS KEY [N]\n");
    return 2;
  }
  must(gfs_init(arguments[1], arguments[2]), "gfs_init");
  file = forked_file("transpose.forked");
  parts = forks_of(file, "a", a, SUBFILES_MAX);
  forks_of(file, "t", t, SUBFILES_MAX);
  if (n < 16 || n % (16 * parts)) {
    fprintf(stderr, "N is a multiple of %d (16 panels of each of %d subfiles), not %d\n", 16 * parts, parts, n);
    return 2;
  }
  rows = n / parts;
  w = rows / 16;
  row_bytes = (uint64_t)n * sizeof(double);
  record = (uint64_t)w * sizeof(double);
  panel = room((size_t)n * record);
  turned = room((size_t)n * record);
  striped = striped_file(arguments[1], arguments[2], "transpose.striped");

  for (row = 0; row < n; row++) {
    for (column = 0; column < n; column++) turned[column] = value(n, row, column);
    must(gfs_write(a[row / rows], turned, (uint64_t)(row % rows) * row_bytes, row_bytes), "write a row");
    must(gfs_write(striped, turned, (uint64_t)row * row_bytes, row_bytes), "write a row");
  }
  for (part = 0; part < parts; part++) handles[part] = gfs_new_handle();
  for (first = 0; first < n; first += w) {
    began = now();
    for (part = 0; part < parts; part++)
      must(gfs_nb_read_strided(handles[part], a[part], panel + (size_t)part * rows * w, (uint64_t)first * sizeof(double),
                               record, (int64_t)row_bytes, (int64_t)record, (uint64_t)rows),
           "read a panel");
    for (part = 0; part < parts; part++) must(gfs_wait(handles[part]), "gfs_wait");
    structured += now() - began;
    turn(panel, turned, n, w);
    must(gfs_write(t[first / rows], turned, (uint64_t)(first % rows) * row_bytes, (uint64_t)w * row_bytes),
         "write the turned panel");

    began = now();
    for (row = 0; row < n; row++)
      must(gfs_read(striped, panel + (size_t)row * w,
                    (uint64_t)row * row_bytes + (uint64_t)first * sizeof(double), record),
           "read a row of the panel");
    single += now() - began;
  }
  for (row = 0; row < n; row++) {
    must(gfs_read(t[row / rows], turned, (uint64_t)(row % rows) * row_bytes, row_bytes), "read a row");
    for (column = 0; column < n; column++) {
      if (turned[column] == value(n, column, row)) continue;
      fprintf(stderr, "row %d, column %d of the transpose is wrong\n", row, column);
      return 1;
    }
  }
  printf("transpose: %d x %d in panels of %d columns, %d subfiles: panels read in %.3f s, from a striped file by single "
         "reads in %.3f s (%.1f x)\n",
         n, n, w, parts, structured, single, single / structured);
  free(panel);
  free(turned);
  return 0;
}
