/* A library of compressed arrays in small: chunks of an array are compressed, one after the other, into fork `data` of
 * their subfile, and fork `index` says where each of them lies. The two never move each other: the index grows at its
 * own pace, and a program that wants one chunk reads 16 bytes of the index and the chunk.
 *
 *     cc chunks.c $(pkg-config --cflags --libs shoal) -o chunks
 *     ./chunks shoal://HOST:PORT/NAME KEY [CHUNKS] */
#include "example.h"

enum { SUBFILES_MAX = 64, CHUNK = 16384, PACKED_MAX = 2 * CHUNK };

/* An entry of the index, in the order of the machine. */
struct entry {
  uint64_t offset;
  uint64_t bytes;
};

/* Runs of equal bytes: a length from 1 to 255, and the byte. */
static size_t pack(const unsigned char *from, unsigned char *to) {
  size_t at = 0, out = 0;
  while (at < CHUNK) {
    size_t run = 1;
    while (at + run < CHUNK && run < 255 && from[at + run] == from[at]) run++;
    to[out++] = (unsigned char)run;
    to[out++] = from[at];
    at += run;
  }
  return out;
}

/* Whether the packed bytes are one chunk. */
static int unpack(const unsigned char *from, size_t bytes, unsigned char *to) {
  size_t at, out = 0;
  for (at = 0; at + 1 < bytes; at += 2) {
    if (from[at] > CHUNK - out) return 0;
    memset(to + out, from[at + 1], from[at]);
    out += from[at];
  }
  return out == CHUNK && bytes % 2 == 0;
}

/* A slowly rising field, with steps of other lengths in each chunk. */
static void field(unsigned char *into, int chunk) {
  int at;
  for (at = 0; at < CHUNK; at++) into[at] = (unsigned char)(chunk + at / (17 + chunk % 400));
}

int main(int count, char **arguments) {
  int chunks = count > 3 ? atoi(arguments[3]) : 512;
  int data[SUBFILES_MAX], index[SUBFILES_MAX], file, parts, striped, part, chunk;
  uint64_t ends[SUBFILES_MAX] = {0}, all = 0;
  unsigned char *plain = room(CHUNK), *packed = room(PACKED_MAX), *found = room(CHUNK);
  double began, forked_s, striped_s;
  if (count < 3) {
    fprintf(stderr, "usage: chunks ADDRESS KEY [CHUNKS]\n");
    return 2;
  }
  must(gfs_init(arguments[1], arguments[2]), "gfs_init");
  file = forked_file("chunks.forked");
  parts = forks_of(file, "data", data, SUBFILES_MAX);
  forks_of(file, "index", index, SUBFILES_MAX);
  striped = striped_file(arguments[1], arguments[2], "chunks.striped");
  for (chunk = 0; chunk < chunks; chunk++) {
    struct entry entry;
    part = chunk % parts;
    field(plain, chunk);
    entry.offset = ends[part];
    entry.bytes = pack(plain, packed);
    must(gfs_write(data[part], packed, entry.offset, entry.bytes), "write a chunk");
    must(gfs_write(index[part], &entry, (uint64_t)(chunk / parts) * sizeof entry, sizeof entry), "write its entry");
    ends[part] += entry.bytes;
    all += entry.bytes;
    must(gfs_write(striped, plain, (uint64_t)chunk * CHUNK, CHUNK), "write to the striped file");
  }
  /* The index is written after the chunk, and both are synced: a reader after a crash finds each entry's bytes. */
  for (part = 0; part < parts; part++) {
    must(gfs_flush_fork(data[part]), "flush the chunks");
    must(gfs_flush_fork(index[part]), "flush the index");
  }
  began = now();
  for (chunk = chunks - 1; chunk >= 0; chunk--) {
    struct entry entry;
    part = chunk % parts;
    must(gfs_read(index[part], &entry, (uint64_t)(chunk / parts) * sizeof entry, sizeof entry), "read an entry");
    if (entry.bytes > PACKED_MAX) {
      fprintf(stderr, "the entry of chunk %d is damaged\n", chunk);
      return 1;
    }
    must(gfs_read(data[part], packed, entry.offset, entry.bytes), "read a chunk");
    field(plain, chunk);
    if (!unpack(packed, entry.bytes, found) || memcmp(plain, found, CHUNK)) {
      fprintf(stderr, "chunk %d is wrong\n", chunk);
      return 1;
    }
  }
  forked_s = now() - began;
  began = now();
  for (chunk = chunks - 1; chunk >= 0; chunk--) {
    must(gfs_read(striped, found, (uint64_t)chunk * CHUNK, CHUNK), "read from the striped file");
    field(plain, chunk);
    if (memcmp(plain, found, CHUNK)) return 1;
  }
  striped_s = now() - began;
  printf("chunks: %d of %d bytes in %llu bytes of %d subfiles (%.0f %%): read in %.3f s, uncompressed from a striped file in "
         "%.3f s\n",
         chunks, CHUNK, (unsigned long long)all, parts, 100.0 * (double)all / ((double)chunks * CHUNK), forked_s, striped_s);
  free(plain);
  free(packed);
  free(found);
  return 0;
}
