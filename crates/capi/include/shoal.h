/* ShoalFS from C: a file system, its names, files and patterns.
 *
 * All calls block, and any thread may make them. A call that fails returns -1, sets errno, and keeps the
 * error's number and words for its thread (shoal_error_number, shoal_error_words). The words name the call, the
 * paths as the caller gave them, and the server where one is the reason.
 *
 * Handles are numbers, never pointers: a closed or invented one is EBADF. A child of fork has none of its
 * parent's handles and connects by itself. No call is safe in a signal's handler.
 *
 * Every call has a deadline, with the wait for other threads: the thread's (shoal_set_thread_timeout),
 * otherwise the connection's (shoal_set_timeout, 120 s at first). A call that meets it is ETIMEDOUT; its effect
 * may or may not take place. A request to a server of a ShoalFS has 30 s at most, also where the call has more;
 * shoal_connect waits so long for each request, whatever is set.
 *
 * A buffer is of 1 GiB at most (EINVAL), and null only with a length of 0 (EFAULT).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SHOAL_H
#define SHOAL_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_fs { uint64_t id; } shoal_fs;
typedef struct shoal_file { uint64_t id; } shoal_file;
typedef struct shoal_dir { uint64_t id; } shoal_dir;
/* Id 0 stands for none. */
typedef struct shoal_pattern { uint64_t id; } shoal_pattern;

typedef struct shoal_time {
  int64_t seconds; /* since 1970 */
  int64_t nanoseconds;
} shoal_time;

typedef struct shoal_stat_t {
  uint64_t object;
  uint64_t size;
  uint64_t space; /* bytes taken */
  uint32_t mode;  /* kind and permission bits, as S_IFMT has them */
  uint32_t links;
  uint32_t uid;
  uint32_t gid;
  shoal_time accessed;
  shoal_time modified;
  shoal_time changed;
  shoal_time born;
} shoal_stat_t;

typedef struct shoal_entry {
  uint64_t object;
  uint32_t mode; /* the kind's bits alone */
  uint32_t name_len;
  char name[256]; /* ends with 0 */
} shoal_entry;

typedef struct shoal_level {
  int64_t stride;
  uint64_t count;
} shoal_level;

typedef struct shoal_region {
  int64_t offset;
  uint64_t len;
} shoal_region;

/* Bytes, or, if vector is not null, a vector of nodes; repeated. */
typedef struct shoal_branch {
  int64_t offset;
  int64_t stride;
  uint64_t count;
  uint64_t bytes;
  const struct shoal_branch *vector;
  size_t vector_len;
  int is_absolute; /* offset counts from the file's start, not from the vector around */
} shoal_branch;

/* A file to be read whole. path, buffer and len are the caller's; the call sets the others. */
typedef struct shoal_read_entry {
  const char *path;
  void *buffer;
  size_t len;
  uint64_t size; /* of the file, where it was found */
  int64_t done;  /* the bytes read: all of the file; or -1 */
  int error;     /* 0, or errno's number; ERANGE: the file has more bytes than the buffer */
} shoal_read_entry;

/* A file to be made, with its contents. path, data and len are the caller's; the call sets the others. */
typedef struct shoal_create_entry {
  const char *path;
  const void *data;
  size_t len;
  int64_t done; /* the bytes written: len; or -1 */
  int error;    /* 0, or errno's number; EEXIST: the name leads to an object */
} shoal_create_entry;

/* where: "shoal://HOST:PORT/NAME", "DIR=container", "DIR=composed" or "DIR=plain" with an absolute DIR, as
 * `shoal run --over` has them. key: a key file, or null for the usual places. */
int shoal_connect(const char *where, const char *key, shoal_fs *out);
/* Closes also the files and listings of the connection. */
int shoal_close(shoal_fs fs);
int shoal_sync(shoal_fs fs);
int shoal_set_timeout(shoal_fs fs, int64_t milliseconds);
/* For calls of this thread; less than 0: that of the connection. */
void shoal_set_thread_timeout(int64_t milliseconds);
int shoal_error_number(void);
/* Stays until the thread's next error. */
const char *shoal_error_words(void);

/* Names. A path counts from the root of the file system, with or without a `/` at its start. The umask is
 * not applied. */
int shoal_stat(shoal_fs fs, const char *path, shoal_stat_t *out);
int shoal_lstat(shoal_fs fs, const char *path, shoal_stat_t *out);
int shoal_mkdir(shoal_fs fs, const char *path, uint32_t mode);
int shoal_unlink(shoal_fs fs, const char *path);
int shoal_rmdir(shoal_fs fs, const char *path);
int shoal_rename(shoal_fs fs, const char *from, const char *to);
int shoal_symlink(shoal_fs fs, const char *target, const char *path);
/* The target's whole length; the buffer holds its beginning, without a 0. */
int64_t shoal_readlink(shoal_fs fs, const char *path, char *buffer, size_t len);
int shoal_link(shoal_fs fs, const char *from, const char *to);
int shoal_chmod(shoal_fs fs, const char *path, uint32_t mode);
int shoal_truncate(shoal_fs fs, const char *path, uint64_t size);
int shoal_opendir(shoal_fs fs, const char *path, shoal_dir *out);
/* 1, or 0 at the end. */
int shoal_readdir(shoal_dir dir, shoal_entry *out);
int shoal_closedir(shoal_dir dir);

/* Files. flags: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC. */
int shoal_open(shoal_fs fs, const char *path, int flags, uint32_t mode, shoal_file *out);
int shoal_close_file(shoal_file file);
/* The bytes read: fewer only at the end of the file. */
int64_t shoal_pread(shoal_file file, void *buffer, size_t len, uint64_t offset);
int64_t shoal_pwrite(shoal_file file, const void *buffer, size_t len, uint64_t offset);
/* The offset at which the whole of it lies. */
int64_t shoal_append(shoal_file file, const void *buffer, size_t len);
int shoal_fsync(shoal_file file);
int shoal_ftruncate(shoal_file file, uint64_t size);
int shoal_fstat(shoal_file file, shoal_stat_t *out);

/* Batches: one call for up to 1,048,576 files, which blocks until all are done. On a ShoalFS it makes one message for
 * each server and up to 128 files (of at most 8 KiB, as their buffers; fewer with larger ones); elsewhere it does one
 * file after the other. Each entry has a result of its own, in done
 * and error. The calls return the number of entries that succeeded, and shoal_error_number and shoal_error_words are
 * those of the first that failed. -1: no entry was tried, and none was changed. Paths in one directory are cheapest.
 *
 * At the deadline entries have ETIMEDOUT; their effect may or may not take place. On file systems that are no ShoalFS
 * these may be all of the last 4,096 entries, also those that are done. After EIO from a call that returned -1 the
 * entries are undefined.
 *
 * The array, its paths and its data stay as they are until the call returns. A buffer overlaps no other one, nor the
 * array, nor a path. */
int64_t shoal_read_many(shoal_fs fs, shoal_read_entry *reads, size_t count);
/* None may exist. After an error a file may be there, in part. */
int64_t shoal_create_many(shoal_fs fs, shoal_create_entry *creates, size_t count, uint32_t mode);

/* Patterns: one call moves all their regions, up to 1 GiB. Strides may be negative. Where the regions of one write
 * overlap, the later one's bytes stay. A list has up to 4,194,304 regions, and goes in requests of 4,096; a batched
 * vector with vectors inside has up to 4,096 nodes (EINVAL). */
int shoal_pattern_contiguous(int64_t offset, uint64_t len, shoal_pattern *out);
int shoal_pattern_strided(int64_t offset, uint64_t record, int64_t stride, uint64_t count, shoal_pattern *out);
/* Levels innermost first. */
int shoal_pattern_nested(int64_t offset, uint64_t record, const shoal_level *levels, size_t levels_len, shoal_pattern *out);
int shoal_pattern_list(const shoal_region *regions, size_t regions_len, shoal_pattern *out);
int shoal_pattern_batched(const shoal_branch *vector, size_t vector_len, shoal_pattern *out);
int64_t shoal_pattern_len(shoal_pattern pattern);
int shoal_pattern_free(shoal_pattern pattern);
/* into, from: memory's pattern, counted from buffer, of the same length as the file's; id 0: packed. The bytes
 * moved. Bytes beyond the end of the file are read as 0. */
int64_t shoal_read_pattern(shoal_file file, shoal_pattern pattern, void *buffer, size_t len, shoal_pattern into);
int64_t shoal_write_pattern(shoal_file file, shoal_pattern pattern, const void *buffer, size_t len, shoal_pattern from);

#ifdef __cplusplus
}
#endif

#endif
