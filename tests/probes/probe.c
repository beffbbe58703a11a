/* The program that tests run inside a sandbox: it does on request what a hostile server would do, and says what came of it.
 *
 * It reads one command a line from stdin (fields separated by tabs) and answers each with one line of JSON on stdout.
 * Every attempt is made in a child of its own, so that a killed attempt is an answer too. Static, no dependencies, so
 * that it runs in an image that holds nothing else, on the host, and under any runtime.
 *
 *   sys <nr> <arg>... [; <nr> <arg>...]   system calls in one child; arguments: number, s:<text>, x:<hex>, z:<zero bytes>,
 *                                         i:<32-bit integer array>, self, parent, r:<index of an earlier call's result>
 *   cat <path> <max>        content as hex         ls <path>      names          mode <path>   st_mode, uid, size
 *   run <path> <arg>...     status and output      env            environment    cwd           working directory
 *   link <path>             where a link points
 *   fill <path> <bytes>     write until refused    inodes <dir> <n>              fds <n>       open until refused
 *   forks <n>               fork until refused     hog <bytes>    touch memory   spin <threads> <ms>
 *   flood <fd> <bytes>      int80 / x32            stubborn       ignore SIGTERM and the end of input, with orphans
 *   exit <code>
 *
 * As a program: `probe sleep`, `probe exit <code>`, `probe stubborn`, `probe euid`, `probe caps`.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIELDS = 256, LINE = 1 << 16, CALLS = 32, SECONDS = 10 };

extern char **environ;

static const char *name_of(int number) {
  const char *name = number ? strerrorname_np(number) : "OK";
  return name ? name : "E?";
}

static void quoted(const char *text, size_t length) {
  putchar('"');
  for (size_t at = 0; at < length; at++) {
    unsigned char c = (unsigned char)text[at];
    if (c == '"' || c == '\\') printf("\\%c", c);
    else if (c < 0x20 || c > 0x7e) printf("\\u%04x", c);
    else putchar(c);
  }
  putchar('"');
}

static void hex(const unsigned char *data, size_t length) {
  putchar('"');
  for (size_t at = 0; at < length; at++) printf("%02x", data[at]);
  putchar('"');
}

/* --- system calls ------------------------------------------------------------------------------------------------- */
static long argument(char *text, const long *results) {
  if (!strncmp(text, "s:", 2)) return (long)(text + 2);
  if (!strncmp(text, "z:", 2)) return (long)calloc(1, strtoul(text + 2, NULL, 0) + 1);
  if (!strncmp(text, "r:", 2)) return results[strtoul(text + 2, NULL, 0) % CALLS];
  if (!strcmp(text, "self")) return getpid();
  if (!strcmp(text, "parent")) return getppid();
  if (!strncmp(text, "i:", 2)) {
    int *values = calloc(64, sizeof *values), count = 0;
    for (char *part = strtok(text + 2, ","); part && count < 64; part = strtok(NULL, ",")) values[count++] = (int)strtoll(part, NULL, 0);
    return (long)values;
  }
  if (!strncmp(text, "x:", 2)) {
    size_t length = strlen(text + 2) / 2;
    unsigned char *data = calloc(1, length + 1);
    for (size_t at = 0; at < length; at++) sscanf(text + 2 + 2 * at, "%2hhx", data + at);
    return (long)data;
  }
  return (long)strtoull(text, NULL, 0);
}

struct outcome { long result; int error; };

static void calls(char **fields, int count) {
  int channel[2];
  if (pipe(channel)) { printf("{\"errno\":\"%s\"}\n", name_of(errno)); return; }
  fflush(stdout);
  pid_t child = fork();
  if (child < 0) { printf("{\"errno\":\"%s\",\"where\":\"fork\"}\n", name_of(errno)); close(channel[0]); close(channel[1]); return; }
  if (child == 0) {
    long results[CALLS] = {0}, a[7] = {0};
    int call = 0, n = 0;
    alarm(SECONDS);
    for (int at = 0; at <= count; at++) {
      if (at == count || !strcmp(fields[at], ";")) {
        errno = 0;
        struct outcome o;
        o.result = syscall(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
        o.error = o.result == -1 ? errno : 0;
        if (a[0] == SYS_clone && o.result == 0) _exit(0);
        results[call++ % CALLS] = o.result;
        if (write(channel[1], &o, sizeof o) != sizeof o) _exit(1);
        memset(a, 0, sizeof a);
        n = 0;
      } else if (n < 7) a[n++] = argument(fields[at], results);
    }
    _exit(0);
  }
  close(channel[1]);
  struct outcome o;
  printf("{\"calls\":[");
  for (int call = 0; read(channel[0], &o, sizeof o) == sizeof o; call++)
    printf("%s[\"%s\",%ld]", call ? "," : "", name_of(o.error), o.result);
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  printf("],\"signal\":%d}\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void foreign_entry(int x32) {
  fflush(stdout);
  int channel[2];
  if (pipe(channel)) return;
  pid_t child = fork();
  if (child == 0) {
    long result = -ENOSYS;
#if defined(__x86_64__)
    if (x32) { errno = 0; result = syscall(0x40000000 + 39); if (result == -1) result = -errno; }
    else __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
#endif
    if (write(channel[1], &result, sizeof result) != sizeof result) _exit(1);
    _exit(0);
  }
  close(channel[1]);
  long result = 0;
  ssize_t got = read(channel[0], &result, sizeof result);
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  printf("{\"answered\":%s,\"result\":%ld,\"signal\":%d}\n", got == sizeof result ? "true" : "false", result, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/* --- files -------------------------------------------------------------------------------------------------------- */
static void cat(const char *path, size_t most) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) { printf("{\"errno\":\"%s\"}\n", name_of(errno)); return; }
  unsigned char *data = malloc(most + 1);
  size_t size = 0;
  ssize_t got = 0;
  while (size < most && (got = read(fd, data + size, most - size)) > 0) size += (size_t)got;
  printf("{\"errno\":\"%s\",\"hex\":", name_of(got < 0 ? errno : 0));
  hex(data, size);
  printf("}\n");
  free(data);
  close(fd);
}

static void ls(const char *path) {
  DIR *dir = opendir(path);
  if (!dir) { printf("{\"errno\":\"%s\",\"names\":[]}\n", name_of(errno)); return; }
  printf("{\"errno\":\"OK\",\"names\":[");
  int first = 1;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (!first) putchar(',');
    first = 0;
    quoted(entry->d_name, strlen(entry->d_name));
  }
  printf("]}\n");
  closedir(dir);
}

static void mode(const char *path) {
  struct stat s;
  if (lstat(path, &s)) { printf("{\"errno\":\"%s\"}\n", name_of(errno)); return; }
  printf("{\"errno\":\"OK\",\"mode\":%u,\"uid\":%u,\"gid\":%u,\"size\":%lld}\n", s.st_mode, s.st_uid, s.st_gid, (long long)s.st_size);
}

static void link_of(const char *path) {
  char target[4096];
  ssize_t size = readlink(path, target, sizeof target);
  printf("{\"errno\":\"%s\",\"target\":", name_of(size < 0 ? errno : 0));
  quoted(target, size < 0 ? 0 : (size_t)size);
  printf("}\n");
}

static void fill(const char *path, long long bytes) {
  static char block[1 << 16];
  memset(block, 'x', sizeof block);
  signal(SIGXFSZ, SIG_IGN);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  long long written = 0;
  ssize_t got = 0;
  int error = fd < 0 ? errno : 0;
  while (fd >= 0 && written < bytes) {
    got = write(fd, block, sizeof block);
    if (got <= 0) { error = errno; break; }
    written += got;
  }
  if (fd >= 0) close(fd);
  printf("{\"errno\":\"%s\",\"written\":%lld}\n", name_of(error), written);
}

static void inodes(const char *dir, long most) {
  char path[4096];
  long made = 0;
  int error = 0;
  for (; made < most; made++) {
    snprintf(path, sizeof path, "%s/i%ld", dir, made);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) { error = errno; break; }
    close(fd);
  }
  for (long at = 0; at < made; at++) { snprintf(path, sizeof path, "%s/i%ld", dir, at); unlink(path); }
  printf("{\"errno\":\"%s\",\"made\":%ld}\n", name_of(error), made);
}

static void fds(long most) {
  int *opened = calloc((size_t)most, sizeof *opened), error = 0;
  long count = 0;
  for (; count < most; count++) {
    opened[count] = open("/", O_PATH | O_CLOEXEC);
    if (opened[count] < 0) { error = errno; break; }
  }
  for (long at = 0; at < count; at++) close(opened[at]);
  printf("{\"errno\":\"%s\",\"opened\":%ld}\n", name_of(error), count);
  free(opened);
}

static void run(char **fields, int count) {
  int channel[2];
  if (pipe(channel)) return;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS);
    dup2(channel[1], 1);
    fields[count] = NULL;
    execv(fields[0], fields);
    dprintf(1, "%s", name_of(errno));
    _exit(126);
  }
  close(channel[1]);
  unsigned char out[4096];
  size_t size = 0;
  ssize_t got;
  while (size < sizeof out && (got = read(channel[0], out + size, sizeof out - size)) > 0) size += (size_t)got;
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  printf("{\"status\":%d,\"signal\":%d,\"out\":", WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  quoted((char *)out, size);
  printf("}\n");
}

/* --- resources ---------------------------------------------------------------------------------------------------- */
static void forks(long most) {
  pid_t *children = calloc((size_t)most, sizeof *children);
  long made = 0;
  int error = 0;
  for (; made < most; made++) {
    children[made] = fork();
    if (children[made] < 0) { error = errno; break; }
    if (children[made] == 0) { pause(); _exit(0); }
  }
  for (long at = 0; at < made; at++) kill(children[at], SIGKILL);
  for (long at = 0; at < made; at++) waitpid(children[at], NULL, 0);
  printf("{\"errno\":\"%s\",\"made\":%ld}\n", name_of(error), made);
  free(children);
}

static void hog(size_t bytes) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    for (size_t at = 0; at < bytes; at += 1 << 20) {
      char *piece = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (piece == MAP_FAILED) _exit(9);
      memset(piece, 'x', 1 << 20);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("{\"status\":%d,\"signal\":%d}\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static volatile int stop_spinning;
static void *spinner(void *unused) {
  (void)unused;
  while (!stop_spinning) {}
  return NULL;
}

static void spin(int threads, long milliseconds) {
  pthread_t workers[64];
  int made = 0;
  stop_spinning = 0;
  while (made < threads && made < 64 && !pthread_create(&workers[made], NULL, spinner, NULL)) made++;
  struct timespec pause_for = {milliseconds / 1000, (milliseconds % 1000) * 1000000L}, before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  while (nanosleep(&pause_for, &pause_for) && errno == EINTR) {}
  stop_spinning = 1;
  for (int at = 0; at < made; at++) pthread_join(workers[at], NULL);
  clock_gettime(CLOCK_MONOTONIC, &after);
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  double cpu = (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec / 1e6 + (double)used.ru_stime.tv_sec + (double)used.ru_stime.tv_usec / 1e6;
  double wall = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
  printf("{\"threads\":%d,\"cpu\":%.3f,\"wall\":%.3f}\n", made, cpu, wall);
}

static void flood(int fd, long long bytes) {
  static char block[1 << 16];
  memset(block, 'y', sizeof block);
  for (long long done = 0; done < bytes; done += (long long)sizeof block)
    if (write(fd, block, sizeof block) < 0) break;
}

static void stubborn(void) {
  signal(SIGTERM, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  if (fork() == 0) {
    setsid();
    if (fork() == 0) for (;;) pause();
    _exit(0);
  }
  for (;;) pause();
}

static void threads_seccomp(void) {
  pthread_t worker;
  stop_spinning = 0;
  int made = !pthread_create(&worker, NULL, spinner, NULL);
  DIR *dir = opendir("/proc/self/task");
  printf("{\"modes\":[");
  int first = 1;
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    char path[300], line[256];
    int seccomp = -1;
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Seccomp: %d", &seccomp);
    if (file) fclose(file);
    printf("%s%d", first ? "" : ",", seccomp);
    first = 0;
  }
  printf("]}\n");
  if (dir) closedir(dir);
  stop_spinning = 1;
  if (made) pthread_join(worker, NULL);
}

static void environment(void) {
  printf("{\"env\":[");
  for (char **entry = environ; *entry; entry++) {
    if (entry != environ) putchar(',');
    quoted(*entry, strlen(*entry));
  }
  printf("]}\n");
}

static void obey(char **f, int n) {
  char text[4096];
  if (!strcmp(f[0], "sys") && n > 1) calls(f + 1, n - 1);
  else if (!strcmp(f[0], "cat") && n > 2) cat(f[1], strtoul(f[2], NULL, 0));
  else if (!strcmp(f[0], "ls") && n > 1) ls(f[1]);
  else if (!strcmp(f[0], "mode") && n > 1) mode(f[1]);
  else if (!strcmp(f[0], "link") && n > 1) link_of(f[1]);
  else if (!strcmp(f[0], "run") && n > 1) run(f + 1, n - 1);
  else if (!strcmp(f[0], "env")) environment();
  else if (!strcmp(f[0], "cwd")) {
    if (!getcwd(text, sizeof text)) text[0] = 0;
    printf("{\"cwd\":");
    quoted(text, strlen(text));
    printf("}\n");
  }
  else if (!strcmp(f[0], "fill") && n > 2) fill(f[1], atoll(f[2]));
  else if (!strcmp(f[0], "inodes") && n > 2) inodes(f[1], atol(f[2]));
  else if (!strcmp(f[0], "fds") && n > 1) fds(atol(f[1]));
  else if (!strcmp(f[0], "forks") && n > 1) forks(atol(f[1]));
  else if (!strcmp(f[0], "hog") && n > 1) hog(strtoul(f[1], NULL, 0));
  else if (!strcmp(f[0], "spin") && n > 2) spin(atoi(f[1]), atol(f[2]));
  else if (!strcmp(f[0], "flood") && n > 2) { flood(atoi(f[1]), atoll(f[2])); printf("{\"errno\":\"OK\"}\n"); }
  else if (!strcmp(f[0], "int80")) foreign_entry(0);
  else if (!strcmp(f[0], "x32")) foreign_entry(1);
  else if (!strcmp(f[0], "threads")) threads_seccomp();
  else if (!strcmp(f[0], "stubborn")) { printf("{\"errno\":\"OK\"}\n"); fflush(stdout); stubborn(); }
  else if (!strcmp(f[0], "exit")) { int code = n > 1 ? atoi(f[1]) : 0; printf("{\"errno\":\"OK\"}\n"); fflush(stdout); exit(code); }
  else printf("{\"errno\":\"UNKNOWN\"}\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  static char line[LINE];
  if (argc > 1 && !strcmp(argv[1], "sleep")) for (;;) pause();
  if (argc > 1 && !strcmp(argv[1], "stubborn")) stubborn();
  if (argc > 1 && !strcmp(argv[1], "euid")) { printf("%u", geteuid()); return 0; }
  if (argc > 1 && !strcmp(argv[1], "caps")) {
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
      if (!strncmp(line, "CapEff:", 7)) fputs(line + 8, stdout);
    return 0;
  }
  if (argc > 2 && !strcmp(argv[1], "exit")) { fprintf(stderr, "leaving\n"); return atoi(argv[2]); }
  while (fgets(line, sizeof line, stdin)) {
    char *fields[FIELDS + 1], *rest = line;
    int count = 0;
    line[strcspn(line, "\n")] = 0;
    for (char *field; count < FIELDS && (field = strsep(&rest, "\t"));) fields[count++] = field;
    if (count && *fields[0]) obey(fields, count);
  }
  return 0;
}
