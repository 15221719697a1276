/* A data set of radio astronomy, as FITS files have it: each record has keys, and a spectrum of each of two
 * polarisations. On a forked file they are three forks of each subfile; a query for one polarisation reads its forks
 * only. On an ordinary striped file the records are interleaved, and the same query reads all of them.
 *
 *     cc visibilities.c $(pkg-config --cflags --libs shoal) -o visibilities
 *     ./visibilities shoal://HOST:PORT/NAME KEY [RECORDS] */
#include "example.h"

enum { SUBFILES_MAX = 64, KEYS = 64, SPECTRUM = 512, RECORD = KEYS + 2 * SPECTRUM, CHUNK = 1024 };

static void spectrum(unsigned char *into, int record, int polarisation) {
  int channel;
  for (channel = 0; channel < SPECTRUM; channel++)
    into[channel] = (unsigned char)(record * 31 + channel * 7 + polarisation * 101);
}

static long long sum_of(const unsigned char *bytes, size_t len) {
  long long sum = 0;
  size_t at;
  for (at = 0; at < len; at++) sum += bytes[at];
  return sum;
}

int main(int count, char **arguments) {
  int records = count > 3 ? atoi(arguments[3]) : 8192;
  int keys[SUBFILES_MAX], xx[SUBFILES_MAX], yy[SUBFILES_MAX], file, parts, striped, each, part, first, at, some;
  unsigned char *interleaved, *own[3];
  long long forked_sum = 0, striped_sum = 0, forked_bytes = 0, striped_bytes = 0;
  double began, forked_s, striped_s;
  if (count < 3) {
    fprintf(stderr, "usage: visibilities ADDRESS KEY [RECORDS]\n");
    return 2;
  }
  must(gfs_init(arguments[1], arguments[2]), "gfs_init");
  file = forked_file("visibilities.forked");
  parts = forks_of(file, "keys", keys, SUBFILES_MAX);
  forks_of(file, "xx", xx, SUBFILES_MAX);
  forks_of(file, "yy", yy, SUBFILES_MAX);
  if (records < parts || records % parts) {
    fprintf(stderr, "RECORDS is a multiple of %d, the number of subfiles\n", parts);
    return 2;
  }
  each = records / parts;
  striped = striped_file(arguments[1], arguments[2], "visibilities.striped");
  interleaved = room((size_t)CHUNK * RECORD);
  own[0] = room((size_t)CHUNK * KEYS);
  own[1] = room((size_t)CHUNK * SPECTRUM);
  own[2] = room((size_t)CHUNK * SPECTRUM);

  /* The observation: chunks of records. The instrument's memory is interleaved; a strided write takes each column of
   * it to its fork. */
  for (part = 0; part < parts; part++)
    for (first = 0; first < each; first += some) {
      some = each - first < CHUNK ? each - first : CHUNK;
      for (at = 0; at < some; at++) {
        int record = part * each + first + at;
        unsigned char *place = interleaved + (size_t)at * RECORD;
        memset(place, record & 255, KEYS);
        spectrum(place + KEYS, record, 0);
        spectrum(place + KEYS + SPECTRUM, record, 1);
      }
      must(gfs_write_strided(keys[part], interleaved, (uint64_t)first * KEYS, KEYS, KEYS, RECORD, (uint64_t)some), "keys");
      must(gfs_write_strided(xx[part], interleaved + KEYS, (uint64_t)first * SPECTRUM, SPECTRUM, SPECTRUM, RECORD,
                             (uint64_t)some),
           "xx");
      must(gfs_write_strided(yy[part], interleaved + KEYS + SPECTRUM, (uint64_t)first * SPECTRUM, SPECTRUM, SPECTRUM, RECORD,
                             (uint64_t)some),
           "yy");
      must(gfs_write(striped, interleaved, ((uint64_t)part * each + first) * RECORD, (uint64_t)some * RECORD), "striped");
    }

  /* The query: the second polarisation of all records. */
  began = now();
  for (part = 0; part < parts; part++)
    for (first = 0; first < each; first += some) {
      some = each - first < CHUNK ? each - first : CHUNK;
      forked_bytes += must(gfs_read(yy[part], own[2], (uint64_t)first * SPECTRUM, (uint64_t)some * SPECTRUM), "read yy");
      forked_sum += sum_of(own[2], (size_t)some * SPECTRUM);
    }
  forked_s = now() - began;
  began = now();
  for (first = 0; first < records; first += some) {
    some = records - first < CHUNK ? records - first : CHUNK;
    striped_bytes += must(gfs_read(striped, interleaved, (uint64_t)first * RECORD, (uint64_t)some * RECORD), "read all");
    for (at = 0; at < some; at++) striped_sum += sum_of(interleaved + (size_t)at * RECORD + KEYS + SPECTRUM, SPECTRUM);
  }
  striped_s = now() - began;
  if (forked_sum != striped_sum) {
    fprintf(stderr, "the forks give %lld, and the striped file %lld\n", forked_sum, striped_sum);
    return 1;
  }
  printf("visibilities: %d records, one polarisation: %lld bytes of its forks in %.3f s, %lld bytes of the striped file in "
         "%.3f s (%.0f %% of the bytes)\n",
         records, forked_bytes, forked_s, striped_bytes, striped_s, 100.0 * (double)forked_bytes / (double)striped_bytes);
  free(interleaved);
  free(own[0]);
  free(own[1]);
  free(own[2]);
  return 0;
}
