// Children that the C library starts by itself (system, popen, posix_spawn), and record locks of a process that forks. Prints what it finds.
//
//     children [KIND]      a ShoalFS has no locks between processes
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void check(int is_right, const char *words) {
  printf("%s: %s\n", is_right ? "right" : "WRONG", words);
  fflush(stdout);
}

static int is_there(const char *name) { return access(name, F_OK) == 0; }

static int make(const char *name, const char *text) {
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
  int is_made = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return is_made;
}

static int holds(const char *name, const char *text) {
  char found[256] = {0};
  int fd = open(name, O_RDONLY);
  ssize_t len = read(fd, found, sizeof found - 1);
  close(fd);
  return len == (ssize_t)strlen(text) && !strcmp(found, text);
}

static void *shells(void *argument) {
  char command[64];
  snprintf(command, sizeof command, "echo x >thread.%ld; sleep 0.1", (long)argument);
  for (int round = 0; round < 3; round++)
    if (system(command) != 0) return "failed";
  return NULL;
}

static void by_system(void) {
  struct sigaction before;
  sigaction(SIGINT, NULL, &before);
  check(system(NULL) != 0, "there is a shell");
  check(WEXITSTATUS(system("exit 7")) == 7, "a shell's status");
  check(WTERMSIG(system("kill -9 $$")) == 9, "a shell's signal");
  check(WEXITSTATUS(system("/no/such/program 2>/dev/null")) == 127, "a program that is not there");

  pthread_t threads[4];
  void *failed = NULL, *words;
  for (long thread = 0; thread < 4; thread++) pthread_create(&threads[thread], NULL, shells, (void *)thread);
  for (int thread = 0; thread < 4; thread++) {
    pthread_join(threads[thread], &words);
    if (words != NULL) failed = words;
  }
  check(failed == NULL && is_there("thread.0") && is_there("thread.3"), "shells of threads");
  struct sigaction interrupt;
  sigset_t mask;
  sigaction(SIGINT, NULL, &interrupt);
  sigprocmask(SIG_SETMASK, NULL, &mask);
  check(interrupt.sa_handler == before.sa_handler && !sigismember(&mask, SIGCHLD), "signals as before");
  check(system("rm -f thread.*") == 0 && !is_there("thread.0"), "rm in the directory of the process");
}

static int reads(const char *command, const char *text) {
  char line[256] = {0};
  FILE *stream = popen(command, "r");
  size_t len = stream == NULL ? 0 : fread(line, 1, sizeof line - 1, stream);
  return stream != NULL && pclose(stream) == 0 && len == strlen(text) && !strcmp(line, text);
}

static void by_popen(void) {
  check(reads("cat in", "in\n"), "popen reads in the directory of the process");
  FILE *first = popen("cat >first", "w"), *second = popen("cat >second", "we");
  check(fputs("one", first) >= 0 && fputs("two", second) >= 0, "writes into shells");
  check((fcntl(fileno(second), F_GETFD) & FD_CLOEXEC) && !(fcntl(fileno(first), F_GETFD) & FD_CLOEXEC), "flags of popen");
  // The second shell must not have the first one's end.
  check(pclose(first) == 0 && holds("first", "one"), "pclose waits for its shell");
  check(pclose(second) == 0 && holds("second", "two"), "and for the other");
  FILE *failing = popen("exit 3", "r");
  check(WEXITSTATUS(pclose(failing)) == 3, "a status by pclose");
  // A pointer, as the compiler refuses this.
  int (*volatile end_it)(FILE *) = fclose;
  FILE *closed = popen("cat >third", "w");
  check(fputs("three", closed) >= 0 && end_it(closed) == 0 && holds("third", "three"), "fclose waits, too");
  errno = 0;
  check(popen("true", "x") == NULL && errno == EINVAL, "a mode that is none");
  check(wait(NULL) == -1 && errno == ECHILD, "no child is left");
  check(system("rm first second third") == 0, "rm");
}

// The lowest number that is free.
static int lowest(void) {
  int fd = dup(0);
  close(fd);
  return fd;
}

static int runs(const char *file, int by_name, posix_spawn_file_actions_t *actions) {
  char *arguments[] = {(char *)file, NULL};
  pid_t child;
  int status, error = by_name ? posix_spawnp(&child, file, actions, NULL, arguments, environ)
                              : posix_spawn(&child, file, actions, NULL, arguments, environ);
  if (error != 0) return -error;
  waitpid(child, &status, 0);
  return status;
}

static void by_spawn(void) {
  posix_spawn_file_actions_t actions;
  int before = lowest();
  posix_spawn_file_actions_init(&actions);
  check(posix_spawn_file_actions_addopen(&actions, 0, "in", O_RDONLY, 0) == 0, "addopen");
  check(posix_spawn_file_actions_addopen(&actions, 1, "copy", O_WRONLY | O_CREAT | O_TRUNC, 0644) == 0, "addopen");
  check(lowest() == before, "addopen takes no low number");
  check(runs("/bin/cat", 0, &actions) == 0 && holds("copy", "in\n"), "a child with both");
  check(runs("/bin/cat", 0, &actions) == 0, "a second child");
  posix_spawn_file_actions_destroy(&actions);
  int failed = 0;
  for (int round = 0; round < 2000; round++) {
    posix_spawn_file_actions_init(&actions);
    failed += posix_spawn_file_actions_addopen(&actions, 0, "in", O_RDONLY, 0) != 0;
    posix_spawn_file_actions_destroy(&actions);
  }
  check(failed == 0 && lowest() == before, "what addopen opened is closed");

  // Two programs of one name, on the host and here: the first of PATH runs.
  char host[] = "/tmp/shoal-children-XXXXXX", here[4096], path[8300], name[4200];
  check(mkdtemp(host) != NULL && getcwd(here, sizeof here) != NULL, "directories");
  snprintf(name, sizeof name, "%s/which-one", host);
  check(make(name, "#!/bin/sh\nexit 1\n") && make("which-one", "#!/bin/sh\nexit 2\n"), "programs");
  snprintf(path, sizeof path, "/no/such:%s:%s:/bin:/usr/bin", host, here);
  setenv("PATH", path, 1);
  check(WEXITSTATUS(runs("which-one", 1, NULL)) == 1, "the first of PATH, on the host");
  snprintf(path, sizeof path, "/no/such:%s:%s:/bin:/usr/bin", here, host);
  setenv("PATH", path, 1);
  check(WEXITSTATUS(runs("which-one", 1, NULL)) == 2, "the first of PATH, here");
  check(runs("which-none", 1, NULL) == -ENOENT, "none in PATH");
  check(runs("true", 1, NULL) == 0, "the last of PATH");
  unlink(name);
  rmdir(host);
}

static int lock(int fd) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(fd, F_SETLK, &whole);
}

// Whether another process gets the lock.
static int is_free(void) {
  int status;
  pid_t other = fork();
  if (other == 0) _exit(lock(open("locked", O_RDWR)) != 0);
  waitpid(other, &status, 0);
  return status == 0;
}

static pid_t sleeper(void) {
  pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  return child;
}

static void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

static void locks(void) {
  int fd = open("locked", O_RDWR | O_CREAT | O_TRUNC, 0644);
  check(lock(fd) == 0, "a lock");
  check(!is_free(), "another process does not get it");
  pid_t child = sleeper();
  close(fd);
  check(is_free(), "a lock ends with the close, though a child lives");
  end(child);
  // A process that takes a lock, forks and ends.
  int ends[2], status;
  pid_t grandchild = 0;
  check(pipe(ends) == 0, "a pipe");
  pid_t owner = fork();
  if (owner == 0) {
    int has = lock(open("locked", O_RDWR)) == 0;
    grandchild = sleeper();
    _exit(!has || write(ends[1], &grandchild, sizeof grandchild) != sizeof grandchild);
  }
  waitpid(owner, &status, 0);
  check(status == 0 && read(ends[0], &grandchild, sizeof grandchild) == sizeof grandchild, "an owner with a child");
  check(is_free(), "a lock ends with its process, though a child lives");
  kill(grandchild, SIGKILL);
  close(ends[0]);
  close(ends[1]);
  // The owner keeps its lock when its child closes the file.
  fd = open("locked", O_RDWR);
  check(lock(fd) == 0, "a lock");
  child = fork();
  if (child == 0) {
    close(fd);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  check(!is_free(), "a child's close leaves the parent its lock");
  close(fd);
}

static void *waits(void *argument) { return flock(*(int *)argument, LOCK_EX) == 0 ? NULL : argument; }

// Whether another process gets the lock of a whole file.
static int is_whole_free(void) {
  int status;
  pid_t other = fork();
  if (other == 0) _exit(flock(open("locked", O_RDWR), LOCK_EX | LOCK_NB) != 0);
  waitpid(other, &status, 0);
  return status == 0;
}

// A lock of a whole file is waited for, and its descriptor is closed meanwhile, or not.
static void whole_locks(void) {
  for (int is_closed = 0; is_closed < 2; is_closed++) {
    int own = open("locked", O_RDWR), others = open("locked", O_RDWR);
    pthread_t thread;
    void *failed;
    check(flock(others, LOCK_EX) == 0 && pthread_create(&thread, NULL, waits, &own) == 0, "a lock of a whole file");
    usleep(100000);
    int number = own;
    if (is_closed) close(number);
    check(!is_whole_free(), "another process does not get it");
    check(flock(others, LOCK_UN) == 0 && pthread_join(thread, &failed) == 0 && failed == NULL, "a thread that waits gets it");
    check(is_whole_free() == is_closed, "it is that of an open file");
    if (!is_closed) close(number);
    check(close(others) == 0 && is_whole_free(), "it ends with the close");
  }
}

int main(void) {
  alarm(120);
  mkdir("d", 0755);
  check(make("kept", "kept"), "a file");
  check(chdir("d") == 0 && make("in", "in\n"), "a directory");
  by_system();
  by_popen();
  by_spawn();
  locks();
  whole_locks();
  unsetenv("LD_PRELOAD");
  unsetenv("SHOAL_PRELOAD");
  check(system("rm -f *") == 0 && !is_there("in"), "rm without our variables");
  check(is_there("../kept"), "nothing is removed elsewhere");
  return 0;
}
