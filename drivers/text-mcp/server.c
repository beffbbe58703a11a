/* A small MCP server over stdio without any dependency: the example of `server.kind: binary`.
 *
 * Speaks the handshake era (2025-11-25). Two tools: `count` and `crc32`. One JSON-RPC message per line; anything that is not
 * a request it knows is answered with an error or, for notifications, ignored. Build: see ./build.
 */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_space(const char *p) {
    while (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n') p++;
    return p;
}

/* Return the end of the JSON value that starts at p, or NULL when it is not well formed. */
static const char *skip_value(const char *p, int depth) {
    if (depth > 64) return NULL;
    p = skip_space(p);
    if (*p == '"') {
        for (p++; *p && *p != '"'; p++)
            if (*p == '\\' && !*++p) return NULL;
        return *p ? p + 1 : NULL;
    }
    if (*p == '{' || *p == '[') {
        char close = *p == '{' ? '}' : ']';
        int object = *p == '{';
        p = skip_space(p + 1);
        if (*p == close) return p + 1;
        for (;;) {
            if (object) {
                if (!(p = skip_value(p, depth + 1))) return NULL;
                p = skip_space(p);
                if (*p++ != ':') return NULL;
            }
            if (!(p = skip_value(p, depth + 1))) return NULL;
            p = skip_space(p);
            if (*p == close) return p + 1;
            if (*p++ != ',') return NULL;
            p = skip_space(p);
        }
    }
    const char *start = p;
    while (*p && !strchr(" \t\r\n,]}:", *p)) p++;
    return p > start ? p : NULL;
}

/* Return the start of member `name` of the object at p, or NULL. */
static const char *member(const char *p, const char *name) {
    size_t length = strlen(name);
    if (!p) return NULL;
    p = skip_space(p);
    if (*p++ != '{') return NULL;
    for (p = skip_space(p); *p == '"'; p = skip_space(p)) {
        const char *key = p + 1;
        const char *end = skip_value(p, 0);
        if (!end) return NULL;
        int found = (size_t)(end - 1 - key) == length && !strncmp(key, name, length);
        p = skip_space(end);
        if (*p++ != ':') return NULL;
        p = skip_space(p);
        if (found) return p;
        if (!(p = skip_value(p, 0))) return NULL;
        p = skip_space(p);
        if (*p == ',') p++;
    }
    return NULL;
}

static void put_utf8(char **out, unsigned long c) {
    char *o = *out;
    if (c < 0x80) *o++ = (char)c;
    else if (c < 0x800) { *o++ = (char)(0xC0 | c >> 6); *o++ = (char)(0x80 | (c & 63)); }
    else if (c < 0x10000) { *o++ = (char)(0xE0 | c >> 12); *o++ = (char)(0x80 | (c >> 6 & 63)); *o++ = (char)(0x80 | (c & 63)); }
    else { *o++ = (char)(0xF0 | c >> 18); *o++ = (char)(0x80 | (c >> 12 & 63)); *o++ = (char)(0x80 | (c >> 6 & 63)); *o++ = (char)(0x80 | (c & 63)); }
    *out = o;
}

/* Decode the JSON string at p into fresh memory; NULL when it is not a string. */
static char *text_of(const char *p, size_t *size) {
    if (!p || *p != '"') return NULL;
    const char *end = skip_value(p, 0);
    if (!end) return NULL;
    char *text = malloc((size_t)(end - p) + 4), *out = text;
    if (!text) exit(1);
    for (p++; p < end - 1; p++) {
        if (*p != '\\') { *out++ = *p; continue; }
        switch (*++p) {
        case 'n': *out++ = '\n'; break;
        case 't': *out++ = '\t'; break;
        case 'r': *out++ = '\r'; break;
        case 'b': *out++ = '\b'; break;
        case 'f': *out++ = '\f'; break;
        case 'u': {
            char hex[5] = {0};
            memcpy(hex, p + 1, 4);
            unsigned long c = strtoul(hex, NULL, 16);
            p += 4;
            if (c >= 0xD800 && c < 0xDC00 && p[1] == '\\' && p[2] == 'u') {
                memcpy(hex, p + 3, 4);
                c = 0x10000 + ((c - 0xD800) << 10) + (strtoul(hex, NULL, 16) - 0xDC00);
                p += 6;
            }
            put_utf8(&out, c);
            break;
        }
        default: *out++ = *p;
        }
    }
    *size = (size_t)(out - text);
    return text;
}

static void answer(const char *id, const char *body) {
    const char *end = skip_value(id, 0);
    printf("{\"jsonrpc\":\"2.0\",\"id\":%.*s,%s}\n", (int)(end - id), id, body);
    fflush(stdout);
}

static void call(const char *id, const char *params) {
    char body[512];
    size_t size = 0, name_size = 0;
    char *name = text_of(member(params, "name"), &name_size);
    char *text = text_of(member(member(params, "arguments"), "text"), &size);
    if (!name || !text) {
        answer(id, "\"error\":{\"code\":-32602,\"message\":\"name and arguments.text are needed\"}");
    } else if (name_size == 5 && !memcmp(name, "count", 5)) {
        unsigned long lines = 0, words = 0;
        int inside = 0;
        for (size_t i = 0; i < size; i++) {
            lines += text[i] == '\n';
            words += !isspace((unsigned char)text[i]) && !inside;
            inside = !isspace((unsigned char)text[i]);
        }
        snprintf(body, sizeof body,
                 "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%zu bytes, %lu lines, %lu words\"}],"
                 "\"structuredContent\":{\"bytes\":%zu,\"lines\":%lu,\"words\":%lu}}", size, lines, words, size, lines, words);
        answer(id, body);
    } else if (name_size == 5 && !memcmp(name, "crc32", 5)) {
        uint32_t crc = 0xFFFFFFFFu;
        for (size_t i = 0; i < size; i++) {
            crc ^= (unsigned char)text[i];
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
        }
        snprintf(body, sizeof body,
                 "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%08x\"}],\"structuredContent\":{\"crc32\":\"%08x\"}}",
                 ~crc, ~crc);
        answer(id, body);
    } else {
        answer(id, "\"error\":{\"code\":-32602,\"message\":\"no such tool\"}");
    }
    free(name);
    free(text);
}

#define TEXT_IN "\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]}"

static void handle(const char *line) {
    if (!skip_value(line, 0)) return;
    const char *id = member(line, "id");
    size_t size = 0;
    char *method = text_of(member(line, "method"), &size);
    if (id && method) {
        method[size] = 0;
        if (!strcmp(method, "initialize"))
            answer(id, "\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},"
                       "\"serverInfo\":{\"name\":\"text-server\",\"version\":\"1.0.0\"}}");
        else if (!strcmp(method, "ping"))
            answer(id, "\"result\":{}");
        else if (!strcmp(method, "tools/list"))
            answer(id, "\"result\":{\"tools\":[{\"name\":\"count\",\"description\":\"Count bytes, lines and words.\"," TEXT_IN ","
                       "\"outputSchema\":{\"type\":\"object\",\"properties\":{\"bytes\":{\"type\":\"integer\",\"minimum\":0},"
                       "\"lines\":{\"type\":\"integer\",\"minimum\":0},\"words\":{\"type\":\"integer\",\"minimum\":0}},"
                       "\"required\":[\"bytes\",\"lines\",\"words\"]}},"
                       "{\"name\":\"crc32\",\"description\":\"CRC-32 of a text.\"," TEXT_IN ","
                       "\"outputSchema\":{\"type\":\"object\",\"properties\":{\"crc32\":{\"type\":\"string\","
                       "\"pattern\":\"^[0-9a-f]{8}$\"}},\"required\":[\"crc32\"]}}]}");
        else if (!strcmp(method, "tools/call"))
            call(id, member(line, "params"));
        else
            answer(id, "\"error\":{\"code\":-32601,\"message\":\"method not found\"}");
    }
    free(method);
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) handle(line);
    free(line);
    return 0;
}
