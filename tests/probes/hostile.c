/* An MCP server that misbehaves in the way that its only argument names; with any other it has one tool, `crc32`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char line[1 << 16];
static const char *how = "";

static int is(const char *name) { return !strcmp(how, name); }

static void answer(const char *rest) {
    char id[32] = {0};
    const char *place = strstr(line, "\"id\":");
    if (!place) return;
    snprintf(id, sizeof id, "%.*s", (int)strcspn(place + 5, ",}"), place + 5);
    printf("{\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n", id, rest);
    fflush(stdout);
}

static void called(void) {
    if (is("dies-in-call")) {
        fprintf(stderr, "\033[31mfatal\033[0m\nfor a reason\n");
        exit(5);
    }
    if (is("floods")) for (;;) puts("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}");
    if (is("silent")) for (;;) pause();
    answer("\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"{\\\"crc32\\\":\\\"cbf43926\\\"}\"}],"
           "\"structuredContent\":{\"crc32\":\"cbf43926\"}}");
}

int main(int count, char **arguments) {
    if (count > 1) how = arguments[1];
    if (is("exits")) { fprintf(stderr, "\033[31mboom\033[0m\nsecond line\n"); return 3; }
    if (is("garbage")) { for (int i = 0; i < 1000; i++) printf("banner %d\n", i); fflush(stdout); for (;;) pause(); }
    if (is("one-line")) for (;;) putchar('a');
    if (is("stays")) { signal(SIGTERM, SIG_IGN); signal(SIGINT, SIG_IGN); signal(SIGHUP, SIG_IGN); }
    while (fgets(line, sizeof line, stdin)) {
        if (strstr(line, "\"initialize\"") && is("refuses"))
            answer("\"error\":{\"code\":-32603,\"message\":\"no\"}");
        else if (strstr(line, "\"initialize\""))
            answer("\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},"
                   "\"serverInfo\":{\"name\":\"hostile\",\"version\":\"1\"}}");
        else if (strstr(line, "\"tools/list\""))
            answer(is("empty") ? "\"result\":{\"tools\":[]}" :
                   "\"result\":{\"tools\":[{\"name\":\"crc32\",\"inputSchema\":{\"type\":\"object\",\"properties\":"
                   "{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]},\"outputSchema\":{\"type\":\"object\","
                   "\"properties\":{\"crc32\":{\"type\":\"string\",\"pattern\":\"^[0-9a-f]{8}$\"}},"
                   "\"required\":[\"crc32\"]}}]}");
        else if (strstr(line, "\"tools/call\"")) called();
        else answer("\"error\":{\"code\":-32601,\"message\":\"unknown\"}");
    }
    if (is("stays")) for (;;) pause();
    return 0;
}
