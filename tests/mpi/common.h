// Shared by the MPI programs: contents that follow from the place, waits, times, errors that end the job.
//
// Only plain POSIX calls reach files, as in programs that know nothing of ShoalFS; MPI is for barriers and sums.
#ifndef SHOAL_TESTS_MPI_COMMON_H
#define SHOAL_TESTS_MPI_COMMON_H
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int rank, size;

// One line on standard error, and the end of all ranks.
static _Noreturn void fail(const char *words, ...) {
  int error = errno;
  char text[512];
  va_list arguments;
  va_start(arguments, words);
  vsnprintf(text, sizeof text, words, arguments);
  va_end(arguments);
  fprintf(stderr, "rank %d of %d: %s (errno %d: %s)\n", rank, size, text, error, strerror(error));
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  _exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

// A barrier that leaves the processor to the others: there may be fewer processors than ranks, and MPI's own waits spin.
static void barrier(void) {
  MPI_Request request;
  int done = 0;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (MPI_Test(&request, &done, MPI_STATUS_IGNORE); !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) usleep(200);
}

static double largest(double mine) {
  double of_all = 0;
  MPI_Reduce(&mine, &of_all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return of_all;
}

static long number(const char *text) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != 0 || value < 0) fail("`%s` is no number", text);
  return value;
}

// Fills with the bytes that belong at this place of this file: no two words of 8 bytes are equal by chance.
static void contents(unsigned char *to, size_t length, uint64_t file, uint64_t offset) {
  for (size_t at = 0; at < length;) {
    uint64_t word = ((offset + at) / 8 + 1) * 0x9E3779B97F4A7C15u ^ (file + 1) * 0xD1B54A32D192ED03u;
    word = (word ^ word >> 31) * 0xBF58476D1CE4E5B9u;
    word ^= word >> 27;
    for (unsigned byte = (offset + at) % 8; byte < 8 && at < length; byte++, at++) to[at] = word >> 8 * byte;
  }
}

// Compares with the same; the place of the first wrong byte is named.
static void verify(const unsigned char *from, size_t length, uint64_t file, uint64_t offset, const char *name) {
  unsigned char right[4096];
  for (size_t at = 0; at < length; at += sizeof right) {
    size_t part = length - at < sizeof right ? length - at : sizeof right;
    contents(right, part, file, offset + at);
    for (size_t byte = 0; byte < part; byte++) {
      if (from[at + byte] == right[byte]) continue;
      errno = 0;
      fail("%s: byte %llu is %02x, not %02x", name, (unsigned long long)(offset + at + byte), from[at + byte], right[byte]);
    }
  }
}

static void begin(int *count, char ***words) {
  MPI_Init(count, words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
}
#endif
