/* rename(2) that can be held, for a process that this is loaded into (LD_PRELOAD).
 *
 * Of a rename to TABLE/_delta_log/<version>.json, which makes a commit of Delta's visible: where the file TABLE/_hold_before is
 * there, it is not done, and where TABLE/_hold_after is there, it is; then TABLE/_held tells of it, and the thread waits until
 * it is killed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int is_there(const char *table, const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", table, name);
    return access(path, F_OK) == 0;
}

static void hold(const char *table) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/_held", table);
    close(open(path, O_CREAT | O_WRONLY, 0644));
    for (;;)
        pause();
}

int rename(const char *from, const char *to) {
    int (*rename_at_once)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    const char *log = strstr(to, "/_delta_log/");
    size_t length = strlen(to);
    if (log == NULL || length < 5 || strcmp(to + length - 5, ".json") != 0)
        return rename_at_once(from, to);
    char table[PATH_MAX];
    snprintf(table, sizeof table, "%.*s", (int)(log - to), to);
    if (is_there(table, "_hold_before"))
        hold(table);
    int result = rename_at_once(from, to);
    if (result == 0 && is_there(table, "_hold_after"))
        hold(table);
    return result;
}
