/* What the examples share: a call that must succeed, a clock, an ordinary striped file to compare with. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gfs.h>

static int64_t must(int64_t done, const char *call) {
  if (done >= 0) return done;
  fprintf(stderr, "%s: %s\n", call, shoal_error_words());
  exit(1);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void *room(size_t bytes) {
  void *memory = malloc(bytes);
  if (memory) return memory;
  fprintf(stderr, "no memory for %zu bytes\n", bytes);
  exit(1);
}

/* Make an ordinary file, striped over all servers, and open it for Galley's transfers. */
static int striped_file(const char *address, const char *key, const char *name) {
  shoal_fs fs;
  shoal_file file;
  must(shoal_connect(address, key, &fs), "connect");
  must(shoal_open(fs, name, O_RDWR | O_CREAT | O_TRUNC, 0644, &file), "make the striped file");
  must(shoal_close_file(file), "close");
  must(shoal_close(fs), "close");
  return (int)must(gfs_open_linear(name), "gfs_open_linear");
}

/* Make a forked file with a subfile on each server, in the place of an older one, and open it. */
static int forked_file(const char *name) {
  if (gfs_delete_file(name) < 0 && gfs_errno != GFS_ENOENT) must(-1, "gfs_delete_file");
  must(gfs_create_file(name, NULL, 0), "gfs_create_file");
  return (int)must(gfs_open_file(name), "gfs_open_file");
}

/* A fork of this name in every subfile, open; returns how many. */
static int forks_of(int file, const char *name, int *forks, int most) {
  int subfiles = (int)must(gfs_subfiles(file), "gfs_subfiles");
  if (subfiles > most) {
    fprintf(stderr, "the file has %d subfiles, and this program knows %d\n", subfiles, most);
    exit(1);
  }
  must(gfs_all_create(file, name), "gfs_all_create");
  must(gfs_all_open(file, forks, name), "gfs_all_open");
  return subfiles;
}

#endif
