/* Writes a large array to a file and reads it back, by all the calls for that. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES (((size_t)10 << 20) + 12345)

static unsigned char value(size_t at) { return (unsigned char)(at * 31 + at / 8191); }

static void check(const char *what, unsigned char *array, ssize_t done) {
    size_t bad = 0;
    for (size_t i = 0; i < BYTES; i++)
        bad += array[i] != value(i);
    printf("%s: %s, wrong %zu\n", what, done == (ssize_t)BYTES ? "all" : strerror(errno), bad);
    memset(array, 0, BYTES);
}

int main(int argc, char **argv) {
    (void)argc;
    unsigned char *array = malloc(BYTES), *other = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        array[i] = value(i);
    int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    printf("written %zd\n", write(file, array, BYTES));
    lseek(file, 0, SEEK_SET);
    check("read", other, read(file, other, BYTES));
    printf("written %zd\n", pwrite(file, array, BYTES, 100));
    check("pread", other, pread(file, other, BYTES, 100));
    FILE *stream = fopen(argv[1], "w+");
    printf("written %zu\n", fwrite(array, 5, BYTES / 5, stream) * 5);
    rewind(stream);
    check("fread", other, (ssize_t)fread(other, 1, BYTES, stream));
    rewind(stream);
    printf("short %zu\n", fread(other, 1, 3, stream));
    return fclose(stream);
}
