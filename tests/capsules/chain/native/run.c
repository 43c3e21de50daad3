/* Turns the lines of the one file that it is given round: the last becomes the first. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 100, LINE_MAX_BYTES = 200 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static FILE *open_or_fail(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (!file) fail(path);
    return file;
}

int main(void) {
    DIR *inputs = opendir("/io/input");
    if (!inputs) fail("/io/input");
    struct dirent *entry;
    do entry = readdir(inputs);
    while (entry && entry->d_name[0] == '.');
    if (!entry) fail("a file in /io/input");

    char path[300];
    snprintf(path, sizeof path, "/io/input/%s", entry->d_name);
    FILE *text = open_or_fail(path, "r");
    static char lines[LINES_MAX][LINE_MAX_BYTES];
    int count = 0;
    while (count < LINES_MAX && fgets(lines[count], LINE_MAX_BYTES, text)) count++;

    FILE *turned = open_or_fail("/io/output/turned.txt", "w");
    fputs("native\n", turned);
    while (count > 0) fputs(lines[--count], turned);
    if (fclose(turned)) fail("/io/output/turned.txt");

    FILE *answer = open_or_fail("/io/output.new", "w");
    fputs("{\"text\": \"turned.txt\", \"makers\": [\"native\"]}", answer);
    if (fclose(answer) || rename("/io/output.new", "/io/output.json")) fail("/io/output.json");
    return 0;
}
