/* What cannot be done to a part of paged memory. With an argument: where the kernel refuses
   userfaultfd. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define BYTES ((size_t)8 << 20)

/* No system call userfaultfd, and no ioctl of its device that makes a descriptor. */
static int forbid(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xAA00, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static void told(const char *what, int failed) {
    printf("%s: %s\n", what, failed ? strerror(errno) : "done");
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        if (forbid())
            return 3;
        char *array = malloc(BYTES);
        told("malloc", !array);
        if (array)
            memset(array, 1, BYTES);
        free(array);
        return 0;
    }
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *array = mmap(NULL, BYTES, protection, flags, -1, 0), *half = array + BYTES / 2;
    memset(array, 1, BYTES);
    told("munmap of a half", munmap(half, BYTES / 2));
    told("munmap of more", munmap(array - 4096, BYTES + 4096));
    told("mprotect", mprotect(half, BYTES / 2, PROT_READ));
    told("mprotect as it was", mprotect(array, BYTES, protection));
    told("mremap", mremap(array, BYTES, 2 * BYTES, MREMAP_MAYMOVE) == MAP_FAILED);
    told("madvise away", madvise(half, BYTES / 2, MADV_DONTNEED));
    told("madvise", madvise(array, BYTES, MADV_SEQUENTIAL));
    told("mmap over it", mmap(half, 4096, protection, flags | MAP_FIXED, -1, 0) == MAP_FAILED);
    size_t sum = 0;
    for (size_t i = 0; i < BYTES; i++)
        sum += (size_t)array[i];
    told("all is there", sum != BYTES);
    told("munmap", munmap(array, BYTES));
    return 0;
}
