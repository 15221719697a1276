// Descriptors that other processes get while this one closes and opens many: by fork, posix_spawn, a message, and raw system calls that the
// library does not see. Whatever happens to the numbers, no descriptor leads to another file. Prints what it finds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void check(int is_right, const char *words) {
  printf("%s: %s\n", is_right ? "right" : "WRONG", words);
  fflush(stdout);
}

// More opens than one file in memory has records.
enum { FILES = 600 };

static const char *name_of(int number) {
  static char name[32];
  snprintf(name, sizeof name, "passed.%d", number);
  return name;
}

// Each file holds its own name.
static int holds(int fd, int number) {
  char found[32] = {0};
  ssize_t len = pread(fd, found, sizeof found - 1, 0);
  return len == (ssize_t)strlen(name_of(number)) && !strcmp(found, name_of(number));
}

static int make_all(void) {
  int is_right = 1;
  for (int number = 0; number < FILES; number++) {
    int fd = open(name_of(number), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    is_right &= fd >= 0 && write(fd, name_of(number), strlen(name_of(number))) > 0 && close(fd) == 0;
  }
  return is_right;
}

// Opens and closes that may get the records of what was closed before.
static int others(int from) {
  int is_right = 1;
  for (int number = from; number < FILES; number++) {
    int fd = open(name_of(number), O_RDONLY);
    is_right &= holds(fd, number);
    close(fd);
  }
  return is_right;
}

static int many_at_once(void) {
  int fds[FILES], is_right = 1;
  for (int number = 0; number < FILES; number++) {
    fds[number] = open(name_of(number), O_RDONLY);
    if (number % 3 == 0) close(fds[number]);
  }
  for (int number = 0; number < FILES; number += 3) fds[number] = open(name_of(number), O_RDONLY);
  for (int number = 0; number < FILES; number++) is_right &= holds(fds[number], number);
  for (int number = 0; number < FILES; number++) is_right &= close(fds[number]) == 0;
  return is_right;
}

static int ends_well(pid_t child) {
  int status;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void by_fork(void) {
  int ends[2], fd = open(name_of(1), O_RDWR);
  if (pipe(ends) < 0) return;
  pid_t child = fork();
  if (child == 0) {
    char go;
    close(ends[1]);
    _exit(read(ends[0], &go, 1) == 0 && holds(fd, 1) && lseek(fd, 3, SEEK_SET) == 3 && others(2) ? 0 : 1);
  }
  close(fd);
  check(others(2), "opens after the parent's last close");
  close(ends[0]);
  close(ends[1]);
  check(ends_well(child), "a child's file, which its parent closed");

  fd = open(name_of(1), O_RDONLY);
  child = fork();
  if (child == 0) _exit(lseek(fd, 3, SEEK_SET) == 3 ? 0 : 1);
  check(ends_well(child) && lseek(fd, 0, SEEK_CUR) == 3, "one position of parent and child");
  close(fd);
}

static void by_spawn(void) {
  int fd = open(name_of(5), O_RDONLY);
  char *arguments[] = {"sh", "-c", "sleep 0.3; test \"$(cat)\" = passed.5", NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, 0);
  pid_t child;
  int failed = posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(fd);
  int is_right = others(6);
  check(!failed && is_right && ends_well(child), "a spawned child's input, which its parent closed");
}

// A shell that reads a descriptor after this process has closed it.
static void by_popen(void) {
  int fd = open(name_of(6), O_RDONLY);
  fcntl(fd, F_SETFD, 0);
  char command[64], found[32] = {0};
  snprintf(command, sizeof command, "sleep 0.3; cat <&%d", fd);
  FILE *stream = popen(command, "r");
  close(fd);
  int is_right = others(7);
  size_t len = stream ? fread(found, 1, sizeof found - 1, stream) : 0;
  check(is_right && len > 0 && !strcmp(found, name_of(6)), "what a shell of popen inherited");
  if (stream) pclose(stream);

  fd = open(name_of(6), O_RDONLY);
  fcntl(fd, F_SETFD, 0);
  char *arguments[] = {"sh", "-c", command, NULL};
  snprintf(command, sizeof command, "sleep 0.3; test \"$(cat <&%d)\" = passed.6", fd);
  pid_t child;
  int failed = posix_spawnp(&child, "sh", NULL, NULL, arguments, environ);
  close(fd);
  is_right = others(7);
  check(!failed && is_right && ends_well(child), "what a shell of posix_spawnp inherited");
}

static int send_one(int to, int fd) {
  char byte = 1, room[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec bytes = {&byte, 1};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  return sendmsg(to, &message, 0) == 1;
}

// The same in a list of messages.
static int send_in_list(int to, int fd) {
  char byte = 1, room[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec bytes = {&byte, 1};
  struct mmsghdr message = {.msg_hdr = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room}};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message.msg_hdr);
  head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  return sendmmsg(to, &message, 1, 0) == 1;
}

static int receive_in_list(int from) {
  char byte, room[CMSG_SPACE(sizeof(int))];
  struct iovec bytes = {&byte, 1};
  struct mmsghdr message = {.msg_hdr = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room}};
  if (recvmmsg(from, &message, 1, 0, NULL) != 1 || CMSG_FIRSTHDR(&message.msg_hdr) == NULL) return -1;
  int fd;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message.msg_hdr)), sizeof fd);
  return fd;
}

static int receive_one(int from) {
  char byte, room[CMSG_SPACE(sizeof(int))];
  struct iovec bytes = {&byte, 1};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  if (recvmsg(from, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == NULL) return -1;
  int fd;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

static void by_message(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return;
  pid_t child = fork();
  if (child == 0) {
    usleep(300000);
    int first = receive_one(ends[1]), second = receive_in_list(ends[1]);
    _exit(holds(first, 7) && holds(second, 8) ? 0 : 1);
  }
  int fd = open(name_of(7), O_RDONLY);
  check(send_one(ends[0], fd) && close(fd) == 0 && others(9), "opens after a descriptor was sent");
  fd = open(name_of(8), O_RDONLY);
  check(send_in_list(ends[0], fd) && close(fd) == 0 && others(9), "opens after one was sent in a list");
  check(ends_well(child), "received files, which their sender closed");
  struct msghdr *wild = (struct msghdr *)8;
  check(sendmsg(ends[0], wild, 0) < 0 && errno == EFAULT, "a message that is not there");
  close(ends[0]);
  close(ends[1]);
}

// The library does not see this child begin. It may find that its descriptor is of no use (EBADF), and never another file.
static void by_raw_fork(void) {
  int ends[2], fd = open(name_of(9), O_RDONLY);
  if (pipe(ends) < 0) return;
  char number[16];
  snprintf(number, sizeof number, "%d", fd);
  fcntl(fd, F_SETFD, 0);
  pid_t child = (pid_t)syscall(SYS_fork);
  if (child == 0) {
    char go;
    syscall(SYS_close, ends[1]);
    syscall(SYS_read, ends[0], &go, 1);
    char *arguments[] = {"sh", "-c", "exec 2>/dev/null; found=$(cat <&$0); test -z \"$found\" -o \"$found\" = passed.9", number, NULL};
    syscall(SYS_execve, "/bin/sh", arguments, environ);
    syscall(SYS_exit_group, 9);
  }
  close(fd);
  check(others(10), "opens after the close of what a child got unseen");
  close(ends[0]);
  close(ends[1]);
  check(ends_well(child), "a child that was not seen reads no other file");
}

// A raw call moves the position of the kernel's descriptor: it must not lead to a neighbour.
static void moved(void) {
  int fds[3], ends[2];
  for (int number = 0; number < 3; number++) fds[number] = open(name_of(100 + number), O_RDONLY);
  if (pipe(ends) < 0) return;
  for (int by = -1; by <= 1; by += 2) {
    pid_t child = fork();
    if (child == 0) {
      char command[160];
      syscall(SYS_lseek, fds[1], (long)by, SEEK_CUR);
      fcntl(fds[1], F_SETFD, 0);
      snprintf(command, sizeof command, "exec 2>/dev/null; found=$(cat <&%d); test -z \"$found\" -o \"$found\" = passed.101", fds[1]);
      execl("/bin/sh", "sh", "-c", command, (char *)NULL);
      _exit(9);
    }
    check(ends_well(child), "a position that was moved leads to no other file");
  }
  check(holds(fds[0], 100) && holds(fds[1], 101) && holds(fds[2], 102), "and its process reads on");
  for (int number = 0; number < 3; number++) close(fds[number]);
}

// The C library makes this child by itself.
static void by_forkpty(void) {
  int fd = open(name_of(103), O_RDONLY), terminal;
  pid_t child = forkpty(&terminal, NULL, NULL, NULL);
  if (child == 0) {
    close(fd);
    _exit(others(104) ? 0 : 1);
  }
  int is_right = others(104) && holds(fd, 103);
  check(ends_well(child) && is_right, "a child of forkpty and its parent open files");
  check(holds(fd, 103) && others(104), "and its parent goes on");
  close(fd);
  close(terminal);
}

// A daemon goes on with what its parent had open.
static void by_daemon(void) {
  int fd = open(name_of(103), O_RDONLY);
  pid_t child = fork();
  if (child == 0) {
    if (daemon(1, 0) < 0) _exit(9);
    int done = open("daemon.done", O_WRONLY | O_CREAT, 0644);
    if (holds(fd, 103) && others(104)) write(done, "fine", 4) < 0 ? _exit(9) : (void)0;
    close(done);
    _exit(0);
  }
  int is_right = ends_well(child), found = -1;
  char words[8] = {0};
  for (int tries = 0; tries < 100 && words[0] == 0; tries++, usleep(50000)) {
    found = open("daemon.done", O_RDONLY);
    if (found >= 0 && read(found, words, 4) < 0) words[0] = '?';
    if (found >= 0) close(found);
  }
  check(is_right && !strcmp(words, "fine"), "a daemon");
  close(fd);
  unlink("daemon.done");
}

static int locks(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
  return fcntl(fd, F_SETLK, &lock) == 0;
}

// Locks of files whose records are neighbours, by a parent and its child.
static void locked(void) {
  int held = open(name_of(106), O_RDWR), other = open(name_of(107), O_RDWR);
  struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 0x7fffffffffffffff - 100};
  check(locks(held) && fcntl(other, F_SETLK, &all) == 0, "locks of two files");
  all.l_type = F_UNLCK;
  check(fcntl(other, F_SETLK, &all) == 0, "and an unlock");
  pid_t child = fork();
  if (child == 0) {
    int again, is_right = !locks(held) && (errno == EAGAIN || errno == EACCES) && locks(other);
    again = open(name_of(107), O_RDWR);
    _exit(is_right && locks(again) && others(108) ? 0 : 1);
  }
  check(ends_well(child), "a child is kept off what its parent has locked, and off no other file");
  close(held);
  close(other);
}

// A child of a raw system call that uses files as its parent does.
static void by_raw_fork_alone(void) {
  int ends[2], fd = open(name_of(109), O_RDWR);
  if (pipe(ends) < 0) return;
  pid_t child = (pid_t)syscall(SYS_fork);
  if (child == 0) {
    char go;
    syscall(SYS_close, ends[1]);
    syscall(SYS_read, ends[0], &go, 1);
    char found[32] = {0};
    ssize_t len = pread(fd, found, sizeof found - 1, 0);
    // It may be of no use, and never another file.
    syscall(SYS_exit_group, (len < 0 || !strcmp(found, name_of(109))) && others(110) ? 0 : 1);
  }
  close(fd);
  int is_right = others(110);
  close(ends[0]);
  close(ends[1]);
  check(ends_well(child) && is_right, "a child that was not seen, and goes on, reads no other file");
}

// A descriptor of another process by its name: its file, or none.
static void by_name(void) {
  int fd = open(name_of(111), O_RDONLY);
  char command[128];
  snprintf(command, sizeof command, "exec 2>/dev/null; found=$(cat /proc/%d/fd/%d); test -z \"$found\" -o \"$found\" = passed.111", getpid(), fd);
  check(WEXITSTATUS(system(command)) == 0, "another process's descriptor by its name");
  close(fd);
}

// The file in memory keeps its length.
static void cut(void) {
  int fd = open(name_of(105), O_RDONLY);
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/fd/%d", getpid(), fd);
  int is_cut = truncate(name, 0) == 0;
  check(holds(fd, 105) || is_cut, "a descriptor's record is not cut");
  close(fd);
  // Without the library that was the file itself.
  fd = open(name_of(105), O_WRONLY | O_TRUNC);
  check(write(fd, name_of(105), strlen(name_of(105))) > 0 && close(fd) == 0, "the file again");
}

// All numbers beyond those that programs use, closed past the library, and given to another file.
static void behind_our_back(void) {
  int fd = open(name_of(11), O_RDONLY);
  for (int number = 64; number < 1 << 16; number++) {
    char target[64], name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", number);
    ssize_t len = syscall(SYS_readlinkat, AT_FDCWD, name, target, sizeof target - 1);
    if (len > 0 && !strncmp(target, "/memfd:shoal-opens", 18)) {
      syscall(SYS_close, number);
      int other = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY);
      syscall(SYS_dup2, other, number);
      syscall(SYS_close, other);
    }
  }
  check(holds(fd, 11) && others(12), "opens after our descriptor was replaced");
  check(close(fd) == 0, "and a close of one before");
}

// No file may be larger than a page.
static void small_files_only(void) {
  pid_t child = fork();
  if (child == 0) {
    struct rlimit limit = {16384, 16384};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(others(13) && many_at_once() ? 0 : 1);
  }
  check(ends_well(child), "opens where files have a small limit");
}

int main(void) {
  alarm(120);
  struct rlimit numbers;
  getrlimit(RLIMIT_NOFILE, &numbers);
  if (numbers.rlim_cur < 2048) numbers.rlim_cur = numbers.rlim_max < 2048 ? numbers.rlim_max : 2048;
  setrlimit(RLIMIT_NOFILE, &numbers);
  check(make_all(), "files");
  check(others(0), "one after the other");
  check(many_at_once(), "many at once");
  by_fork();
  by_spawn();
  by_popen();
  by_message();
  by_raw_fork();
  by_forkpty();
  by_daemon();
  locked();
  by_raw_fork_alone();
  by_name();
  moved();
  cut();
  behind_our_back();
  small_files_only();
  check(others(0), "all at the end");
  for (int number = 0; number < FILES; number++) unlink(name_of(number));
  return 0;
}
