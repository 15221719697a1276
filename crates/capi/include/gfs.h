/* Galley's calls on a ShoalFS, under their own names: files of subfiles and forks.
 *
 * An application chooses the subfile, and so the server, of each transfer. No call has a file pointer. Calls block, and
 * any thread may make them; they take turns. A call that fails returns -1 and sets gfs_errno (and errno); shoal.h's
 * shoal_error_words has the words. The time for each call is 120 s, or shoal_set_thread_timeout's; then it is
 * ETIMEDOUT. A request to a server has 30 s of it at most, and is then GFS_EIO.
 *
 * A name counts from the root of the file system; one that leads out of it by `..` is GFS_EXDEV. Ids are given once
 * in a process: those of before a gfs_init, and in a child those of before the fork, are GFS_EBADF.
 *
 * A list has up to 4,194,304 entries, and goes in requests of 4,096; a batched vector with vectors inside has up to
 * 4,096 nodes. Where the records of one write overlap, the later one's bytes stay.
 *
 * A buffer may be null where no byte is moved (otherwise EFAULT).
 *
 * Places in memory count from buf and may be negative: the runs that the arguments name must be the caller's, and no
 * other byte is touched. A part of a read after the end of the fork is not moved and not counted.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef GFS_H
#define GFS_H

#include "shoal.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define gfs_errno (shoal_error_number())
#define GFS_ENOENT ENOENT
#define GFS_EIO EIO
#define GFS_EBADF EBADF
#define GFS_EACCES EACCES
#define GFS_EBUSY EBUSY
#define GFS_EEXIST EEXIST
#define GFS_EXDEV EXDEV
#define GFS_EINVAL EINVAL
#define GFS_EMFILE EMFILE
#define GFS_ENOSPC ENOSPC
#define GFS_ENAMETOOLONG ENAMETOOLONG
#define GFS_ENOTSUP EOPNOTSUPP

/* Bytes of a block, for the calls that move one. */
#define GFS_BLOCK_BYTES 32768

/* Id 0 stands for none. */
typedef struct gfs_handle { uint64_t id; } gfs_handle;

/* A level of a nested request; entry 0 of a list is the innermost one. */
struct gfs_stride {
  int64_t f_off; /* bytes of the fork from one repetition to the next */
  int64_t m_off; /* of memory */
  uint64_t quant;
};

/* A node of a batched request: bytes, or a vector of nodes, repeated. The roots are outermost. */
struct gfs_batch {
  int64_t f_off;
  int64_t m_off;
  char f_absolute; /* f_off counts from the fork's start, not from the vector around */
  char m_absolute;
  char sub_vector; /* body.vector is set, with subvec_len nodes */
  uint64_t quant;
  int64_t f_stride;
  int64_t m_stride;
  uint64_t subvec_len;
  union {
    uint64_t size;
    const struct gfs_batch *vector;
  } body;
};

struct gfs_list {
  uint64_t file_offset;
  int64_t memory_offset;
  uint64_t size;
};

/* Begin; a child of fork begins anew, before it has threads. address: "shoal://HOST:PORT/NAME", or null for
 * $SHOAL_ADDRESS; key: a key file, or null for the usual places. Once more: all ids are invalid; GFS_EBUSY while an
 * operation was not waited for. */
int gfs_init(const char *address, const char *key);

/* Files. iop_list: the servers of the subfiles, or null for the file system's choice of num_iops; 0: a subfile on
 * each server. A file that was created is not open. */
int gfs_create_file(const char *file_name, const int *iop_list, int num_iops);
int gfs_open_file(const char *file_name);
int gfs_close_file(int fid);
int gfs_delete_file(const char *file_name);
int gfs_subfiles(int fid);

/* Forks. One that was deleted can be used by those that have it open. */
int gfs_create_fork(int fid, unsigned int subfile, const char *fork_name);
int gfs_open_fork(int fid, unsigned int subfile, const char *fork_name);
/* Any file of the file system as one fork. */
int gfs_open_linear(const char *file_name);
int gfs_close_fork(int fork_id);
int gfs_delete_fork(int fid, unsigned int subfile, const char *fork_name);
/* Reserve space; the size stays. 0: nothing. */
int gfs_extend_fork(int fork_id, uint64_t size);
/* A fork of one name in every subfile; fork_ids has an item for each. */
int gfs_all_create(int fid, const char *fork_name);
int gfs_all_open(int fid, int *fork_ids, const char *fork_name);
int gfs_all_close(int fid, const int *fork_ids);
int gfs_all_delete(int fid, const char *fork_name);

/* Durable. */
int gfs_flush_fork(int fork_id);
int gfs_flush_subfile(int fid, unsigned int subfile);
int gfs_flush_disk(void);

/* Transfers: the bytes moved. */
int64_t gfs_read(int fork_id, void *buf, uint64_t offset, uint64_t size);
int64_t gfs_write(int fork_id, const void *buf, uint64_t offset, uint64_t size);
int64_t gfs_read_block(int fork_id, void *buf, uint64_t block);
int64_t gfs_write_block(int fork_id, const void *buf, uint64_t block);
int64_t gfs_read_strided(int fork_id, void *buf, uint64_t offset, uint64_t size, int64_t f_stride,
                         int64_t m_stride, uint64_t quant);
int64_t gfs_write_strided(int fork_id, const void *buf, uint64_t offset, uint64_t size, int64_t f_stride,
                          int64_t m_stride, uint64_t quant);
int64_t gfs_read_nested(int fork_id, void *buf, uint64_t offset, uint64_t size,
                        const struct gfs_stride *list, int levels);
int64_t gfs_write_nested(int fork_id, const void *buf, uint64_t offset, uint64_t size,
                         const struct gfs_stride *list, int levels);
int64_t gfs_read_batched(int fork_id, void *buf, const struct gfs_batch *vector, int quant);
int64_t gfs_write_batched(int fork_id, const void *buf, const struct gfs_batch *vector, int quant);
int64_t gfs_read_listio(int fork_id, void *buf, const struct gfs_list *list, int quant);
int64_t gfs_write_listio(int fork_id, const void *buf, const struct gfs_list *list, int quant);

/* The same without waiting. A handle has one operation, until gfs_wait has returned (GFS_EBUSY). Operations go on
 * while a thread is in a call; gfs_wait brings its own to the end. A write takes its bytes at once; a read's buffer
 * stays until gfs_wait has returned. After GFS_ETIMEDOUT (errno ETIMEDOUT) of gfs_wait the operation goes on, and
 * its buffer stays still: call gfs_wait again. */
gfs_handle gfs_new_handle(void);
int gfs_free_handle(gfs_handle handle);
/* 1: done. */
int gfs_test(gfs_handle handle);
/* The bytes moved. */
int64_t gfs_wait(gfs_handle handle);
int gfs_nb_read(gfs_handle handle, int fork_id, void *buf, uint64_t offset, uint64_t size);
int gfs_nb_write(gfs_handle handle, int fork_id, const void *buf, uint64_t offset, uint64_t size);
int gfs_nb_read_block(gfs_handle handle, int fork_id, void *buf, uint64_t block);
int gfs_nb_write_block(gfs_handle handle, int fork_id, const void *buf, uint64_t block);
int gfs_nb_read_strided(gfs_handle handle, int fork_id, void *buf, uint64_t offset, uint64_t size,
                        int64_t f_stride, int64_t m_stride, uint64_t quant);
int gfs_nb_write_strided(gfs_handle handle, int fork_id, const void *buf, uint64_t offset, uint64_t size,
                         int64_t f_stride, int64_t m_stride, uint64_t quant);
int gfs_nb_read_nested(gfs_handle handle, int fork_id, void *buf, uint64_t offset, uint64_t size,
                       const struct gfs_stride *list, int levels);
int gfs_nb_write_nested(gfs_handle handle, int fork_id, const void *buf, uint64_t offset, uint64_t size,
                        const struct gfs_stride *list, int levels);
int gfs_nb_read_batched(gfs_handle handle, int fork_id, void *buf, const struct gfs_batch *vector, int quant);
int gfs_nb_write_batched(gfs_handle handle, int fork_id, const void *buf, const struct gfs_batch *vector,
                         int quant);
int gfs_nb_read_listio(gfs_handle handle, int fork_id, void *buf, const struct gfs_list *list, int quant);
int gfs_nb_write_listio(gfs_handle handle, int fork_id, const void *buf, const struct gfs_list *list,
                        int quant);

#ifdef __cplusplus
}
#endif

#endif
