/* Bodies of writes into columns, and columns into fragments: one pass each, without a step in Python for each record.
 *
 * The contract (docs/adr/0039-one-file-of-c.md): every function here gives exactly what the Python beside it gives, or
 * None, which says "not mine". So it knows the common shape alone, and no error: whatever is unusual, too large, or wrong
 * is left to Python, which finds the words for it. `engine/scan.py` is the only one that imports it.
 *
 * In all functions that read, `at` is where to read and `end` where the bytes end; they return where what they read
 * ends, or NULL where it is not what they know. Nothing is read at or beyond `end`.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef const unsigned char *Text;

/* Eight times the same byte. */
#define EACH(byte) (0x0101010101010101u * (byte))
/* Nesting is recursion here, so no caller may ask for more. */
#define DEPTH_MAX 256
/* Numbers below it have at most 18 digits. */
#define NUMBER_END 1000000000000000000LL
/* What one call renders at most. */
#define RENDERED_MAX 0x7fffffff

/* -- JSON ------------------------------------------------------------------------------------------------------- */

static Text skip_space(Text at, Text end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) {
        const uint64_t same = EACH(*at);
        at++;
        for (uint64_t word; 8 <= end - at; at += 8) { /* a run of the same, of which there may be millions */
            memcpy(&word, at, 8);
            if (word != same)
                break;
        }
    }
    return at;
}

/* Whether a byte of a string stands for itself: neither its end, nor an escape, a control or a part of UTF-8. */
static inline int is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\' && byte < 0x80;
}

/* The same for the eight bytes of a word. What is subtracted borrows from the next byte only where one is not plain. */
static inline int are_plain(uint64_t word)
{
    uint64_t quotes = word ^ EACH(0x22), escapes = word ^ EACH(0x5C);
    return ((word | (word - EACH(0x20)) | (quotes - EACH(1)) | (escapes - EACH(1))) & EACH(0x80)) == 0;
}

/* One character of UTF-8 that is not ASCII: neither overlong, nor a surrogate, nor beyond U+10FFFF. */
static Text character_end(Text at, Text end)
{
    unsigned char lead = *at, low = 0x80, high = 0xBF;
    int more;
    if (lead >= 0xC2 && lead <= 0xDF) {
        more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        more = 2;
        low = lead == 0xE0 ? 0xA0 : 0x80;
        high = lead == 0xED ? 0x9F : 0xBF;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        more = 3;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF;
    } else {
        return NULL;
    }
    if (end - at <= more || at[1] < low || at[1] > high)
        return NULL;
    for (int i = 2; i <= more; i++)
        if ((at[i] & 0xC0) != 0x80)
            return NULL;
    return at + 1 + more;
}

static inline int is_hex(unsigned char byte)
{
    return (unsigned)byte - '0' < 10 || ((unsigned)byte | 0x20) - 'a' < 6;
}

/* An escape, from behind its backslash. A surrogate need not have a partner: that is the business of who wrote it. */
static Text escape_end(Text at, Text end)
{
    if (at == end)
        return NULL;
    if (*at != 'u')
        return memchr("\"\\/bfnrt", *at, 8) ? at + 1 : NULL;
    if (end - at < 5)
        return NULL;
    return is_hex(at[1]) && is_hex(at[2]) && is_hex(at[3]) && is_hex(at[4]) ? at + 5 : NULL;
}

/* A string, from behind its first quote. */
static Text string_end(Text at, Text end)
{
    for (;;) {
        for (uint64_t word; end - at >= 8; at += 8) {
            memcpy(&word, at, 8);
            if (!are_plain(word))
                break;
        }
        while (at < end && is_plain(*at))
            at++;
        while (at < end && !is_plain(*at)) {
            if (*at == '"')
                return at + 1;
            if (*at < 0x20)
                return NULL;
            at = *at == '\\' ? escape_end(at + 1, end) : character_end(at, end);
            if (at == NULL)
                return NULL;
        }
        if (at == end)
            return NULL;
    }
}

/* At least one digit. */
static Text digits_end(Text at, Text end)
{
    Text first = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at > first ? at : NULL;
}

static Text number_end(Text at, Text end)
{
    if (at < end && *at == '-')
        at++;
    at = at < end && *at == '0' ? at + 1 : digits_end(at, end);
    if (at != NULL && at < end && *at == '.')
        at = digits_end(at + 1, end);
    if (at != NULL && at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        at = digits_end(at, end);
    }
    return at;
}

static Text word_end(Text at, Text end, const char *word, Py_ssize_t length)
{
    return end - at >= length && memcmp(at, word, (size_t)length) == 0 ? at + length : NULL;
}

/* The key of a member, its colon, and the white space around that: where its value begins. `*key` is where the key
 * itself begins, behind its quote, and `*length` how long it is, as it is written. */
static Text key_end(Text at, Text end, Text *key, Py_ssize_t *length)
{
    if (at == end || *at != '"')
        return NULL;
    *key = at + 1;
    at = string_end(at + 1, end);
    if (at == NULL)
        return NULL;
    *length = at - 1 - *key;
    at = skip_space(at, end);
    return at < end && *at == ':' ? skip_space(at + 1, end) : NULL;
}

/* The same for a key that is written without escapes, which may hide a name that is known. */
static Text named_end(Text at, Text end, Text *key, Py_ssize_t *length)
{
    at = key_end(at, end, key, length);
    return at != NULL && memchr(*key, '\\', (size_t)*length) == NULL ? at : NULL;
}

/* Behind an item of an array or object that `close` ends: the next item (`*more` is 1), or where all of it ends. */
static Text item_end(Text at, Text end, unsigned char close, int *more)
{
    at = skip_space(at, end);
    if (at == end)
        return NULL;
    *more = *at == ',';
    if (*more)
        return skip_space(at + 1, end);
    return *at == close ? at + 1 : NULL;
}

/* Any value that nests at most `depth` deep. */
static Text value_end(Text at, Text end, int depth)
{
    if (at == end)
        return NULL;
    switch (*at) {
    case '"':
        return string_end(at + 1, end);
    case 't':
        return word_end(at, end, "true", 4);
    case 'f':
        return word_end(at, end, "false", 5);
    case 'n':
        return word_end(at, end, "null", 4);
    case '{':
    case '[':
        break;
    default:
        return number_end(at, end);
    }
    const int is_object = *at == '{';
    const unsigned char close = is_object ? '}' : ']';
    int more = 1;
    if (depth == 0)
        return NULL;
    at = skip_space(at + 1, end);
    if (at < end && *at == close)
        return at + 1;
    while (more) {
        Text key;
        Py_ssize_t length;
        if (is_object && (at = key_end(at, end, &key, &length)) == NULL)
            return NULL;
        if ((at = value_end(at, end, depth - 1)) == NULL || (at = item_end(at, end, close, &more)) == NULL)
            return NULL;
    }
    return at;
}

/* -- what is made of it ----------------------------------------------------------------------------------------- */

enum { DATA, TAG, NODE, META, FIELDS };

typedef struct {
    PyObject *lists[FIELDS]; /* NULL as long as no record has one */
    PyObject *last[FIELDS];  /* the newest text of a list, which owns it */
    Text last_at[FIELDS];
    Py_ssize_t last_length[FIELDS], count, most;
} Columns;

static void drop(Columns *columns)
{
    for (int field = 0; field < FIELDS; field++)
        Py_CLEAR(columns->lists[field]);
}

static int field_of(Text key, Py_ssize_t length)
{
    if (length == 3)
        return memcmp(key, "tag", 3) == 0 ? TAG : -1;
    if (length != 4)
        return -1;
    return memcmp(key, "data", 4) == 0 ? DATA : memcmp(key, "node", 4) == 0 ? NODE : memcmp(key, "meta", 4) == 0 ? META : -1;
}

/* Append to a list, which takes the item over; -1 when there is no memory, or no item for want of it. */
static int append_new(PyObject *list, PyObject *item)
{
    int failed = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return failed;
}

/* The value of a field of the newest record, from `at` to `end`: data and meta as bytes, tag and node as texts. */
static int keep(Columns *columns, int field, Text at, Text end)
{
    PyObject **list = &columns->lists[field], *item;
    if (field != DATA && *at == 'n')
        return 0; /* null */
    if (*list == NULL && (*list = PyList_New(0)) == NULL)
        return -1;
    while (PyList_Size(*list) < columns->count) /* the records before had none */
        if (PyList_Append(*list, Py_None) < 0)
            return -1;
    if (field == DATA || field == META)
        return append_new(*list, PyBytes_FromStringAndSize((const char *)at, end - at));
    Py_ssize_t length = end - at - 2;
    if (*at != '"' || memchr(at, '\\', (size_t)(end - at)) != NULL)
        return -1;
    if (columns->last[field] != NULL && columns->last_length[field] == length &&
        memcmp(columns->last_at[field], at + 1, (size_t)length) == 0)
        return PyList_Append(*list, columns->last[field]);
    item = PyUnicode_DecodeUTF8((const char *)at + 1, length, NULL);
    if (append_new(*list, item) < 0)
        return -1;
    columns->last[field] = item;
    columns->last_at[field] = at + 1;
    columns->last_length[field] = length;
    return 0;
}

/* One record: known fields, each once, data among them. The first of too many ends all, but is read, too. */
static Text record_end(Text at, Text end, int depth, Columns *columns)
{
    unsigned seen = 0;
    int more = 1;
    if (at == end || *at != '{')
        return NULL;
    at = skip_space(at + 1, end);
    while (more) {
        Text key, value;
        Py_ssize_t length;
        if ((value = key_end(at, end, &key, &length)) == NULL)
            return NULL;
        int field = field_of(key, length);
        if (field < 0 || (seen & 1u << field) || (at = value_end(value, end, depth)) == NULL)
            return NULL;
        seen |= 1u << field;
        if (keep(columns, field, value, at) < 0 || (at = item_end(at, end, '}', &more)) == NULL)
            return NULL;
    }
    if (!(seen & 1u << DATA))
        return NULL;
    return columns->count++ < columns->most ? at : NULL;
}

static Text records_end(Text at, Text end, int depth, Columns *columns)
{
    int more = 1;
    if (at == end || *at != '[')
        return NULL;
    at = skip_space(at + 1, end);
    while (more && at != NULL && (at = record_end(at, end, depth, columns)) != NULL)
        at = item_end(at, end, ']', &more);
    return at;
}

/* A write body with at least one record. `*rest` is 1 where it has other members too, which only have to be JSON; its
 * records are the text from `*begin` to `*finish`. */
static Text write_end(Text at, Text end, int depth, Columns *columns, Text *begin, Text *finish, int *rest)
{
    int more = 1;
    at = skip_space(at, end);
    if (at == end || *at != '{')
        return NULL;
    at = skip_space(at + 1, end);
    while (more) {
        Text key;
        Py_ssize_t length;
        if ((at = named_end(at, end, &key, &length)) == NULL)
            return NULL;
        if (length == 7 && memcmp(key, "records", 7) == 0) {
            if (*begin != NULL)
                return NULL;
            *begin = at;
            at = *finish = records_end(at, end, depth, columns);
        } else {
            *rest = 1;
            at = value_end(at, end, depth);
        }
        if (at == NULL || (at = item_end(at, end, '}', &more)) == NULL)
            return NULL;
    }
    at = skip_space(at, end);
    return at == end && *begin != NULL ? at : NULL;
}

/* No answer, and no error: Python decides. */
static PyObject *not_mine(void)
{
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* The arguments of those that read, bytes, depth, and how many records there may be (or where); 0 when they are others. */
static int arguments(PyObject *const *args, Py_ssize_t count, Text *at, Text *end, int *depth, Py_ssize_t *most)
{
    char *bytes;
    Py_ssize_t length;
    if (count != 3 || !PyBytes_CheckExact(args[0]) || PyBytes_AsStringAndSize(args[0], &bytes, &length) < 0)
        return 0;
    long bound = PyLong_AsLong(args[1]);
    *most = PyLong_AsSsize_t(args[2]);
    *at = (Text)bytes;
    *end = *at + length;
    *depth = (int)bound;
    return bound >= 0 && bound <= DEPTH_MAX && *most >= 0;
}

static PyObject *scan_write(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Columns columns = {0};
    Text at, end, begin = NULL, finish = NULL;
    int depth, rest = 0;
    PyObject *others = NULL, *answer = NULL;
    if (!arguments(args, count, &at, &end, &depth, &columns.most))
        return not_mine();
    Text whole = at;
    if (write_end(at, end, depth, &columns, &begin, &finish, &rest) == NULL) {
        if (columns.count > columns.most && !rest) {
            answer = Py_False;
            Py_INCREF(answer);
        }
        goto done;
    }
    for (int field = TAG; field < FIELDS; field++)
        while (columns.lists[field] != NULL && PyList_Size(columns.lists[field]) < columns.count)
            if (PyList_Append(columns.lists[field], Py_None) < 0)
                goto done;
    if (rest) { /* the body without its records */
        others = PyBytes_FromStringAndSize(NULL, (begin - whole) + 2 + (end - finish));
        if (others == NULL)
            goto done;
        char *to = PyBytes_AsString(others);
        memcpy(to, whole, (size_t)(begin - whole));
        memcpy(to + (begin - whole), "[]", 2);
        memcpy(to + (begin - whole) + 2, finish, (size_t)(end - finish));
    }
    PyObject *none = Py_None, **lists = columns.lists;
    answer = PyTuple_Pack(5, lists[DATA], lists[TAG] ? lists[TAG] : none, lists[NODE] ? lists[NODE] : none,
                          lists[META] ? lists[META] : none, others ? others : none);
done:
    Py_XDECREF(others);
    drop(&columns);
    return answer != NULL ? answer : not_mine();
}

static PyObject *scan_lines(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Text at, end;
    int depth;
    Py_ssize_t most;
    if (!arguments(args, count, &at, &end, &depth, &most))
        return not_mine();
    PyObject *datas = PyList_New(0);
    while (datas != NULL && (at = skip_space(at, end)) < end) { /* blank lines too */
        Text stop = memchr(at, '\n', (size_t)(end - at)), value = at;
        if (stop == NULL)
            stop = end;
        at = value_end(at, stop, depth);
        if (at == NULL || skip_space(at, stop) != stop || PyList_Size(datas) == most ||
            append_new(datas, PyBytes_FromStringAndSize((const char *)value, at - value)) < 0)
            Py_CLEAR(datas);
        at = stop;
    }
    return datas != NULL ? datas : not_mine();
}

/* The member of an object whose key begins at `at` and hides nothing. */
static Text member_end(Text at, Text end, int depth, Text *key, Py_ssize_t *length, Text *value, Text *finish, int *more)
{
    if ((*value = named_end(at, end, key, length)) == NULL || (*finish = value_end(*value, end, depth)) == NULL)
        return NULL;
    return item_end(*finish, end, '}', more);
}

/* (body, depth, at) → (name, where its value begins and ends, what follows, whether that is another one) for the member
 * of an object whose key begins at `at`; else what follows is what is behind the object. */
static PyObject *scan_member(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Text whole, end, at, key, value, finish;
    int depth, more;
    Py_ssize_t from, length;
    if (!arguments(args, count, &whole, &end, &depth, &from) || from > end - whole ||
        (at = member_end(whole + from, end, depth, &key, &length, &value, &finish, &more)) == NULL)
        return not_mine();
    PyObject *name = PyUnicode_DecodeUTF8((const char *)key, length, NULL), *answer = NULL;
    if (name != NULL)
        answer = Py_BuildValue("(Onnni)", name, value - whole, finish - whole, at - whole, more);
    Py_XDECREF(name);
    return answer != NULL ? answer : not_mine();
}

/* -- fragments -------------------------------------------------------------------------------------------------- */

static char *put(char *to, const char *from, Py_ssize_t length)
{
    memcpy(to, from, (size_t)length);
    return to + length;
}

#define PUT(to, text) put(to, text, sizeof(text) - 1)

/* A number and how it is written. */
typedef struct {
    char digits[20];
    Py_ssize_t length;
} Number;

static int read_number(PyObject *object, Number *number)
{
    long long value = PyLong_AsLongLong(object);
    if (value < 0 || value >= NUMBER_END) /* -1 with an error too */
        return 0;
    number->length = PyOS_snprintf(number->digits, sizeof number->digits, "%lld", value);
    return 1;
}

/* The next number; there is room for one digit more than any number has that was read. */
static void count_up(Number *number)
{
    for (Py_ssize_t i = number->length - 1; i >= 0; i--) {
        if (number->digits[i]++ != '9')
            return;
        number->digits[i] = '0';
    }
    memmove(number->digits + 1, number->digits, (size_t)number->length++);
    number->digits[0] = '1';
}

/* One of the columns of a batch, all of its length or None, and the lengths of its parts as they are rendered. */
typedef struct {
    PyObject *list, *lens;
    uint32_t *len;
    Py_ssize_t fixed; /* bytes of a part that are not its value */
} Column;

/* The bytes of an item: 1, or 0 where there is none, or -1 where it is not what can be rendered here. */
static int item_of(Column *column, int field, Py_ssize_t i, const char **bytes, Py_ssize_t *length)
{
    PyObject *item = column->list == NULL ? Py_None : PyList_GetItem(column->list, i);
    if (item == NULL || (item == Py_None && field == DATA))
        return -1;
    if (item == Py_None)
        return 0;
    if (field == DATA || field == META) {
        char *own;
        if (!PyBytes_CheckExact(item) || PyBytes_AsStringAndSize(item, &own, length) < 0)
            return -1;
        *bytes = own;
    } else if (!PyUnicode_CheckExact(item) || (*bytes = PyUnicode_AsUTF8AndSize(item, length)) == NULL) {
        return -1;
    }
    return *length < RENDERED_MAX ? 1 : -1;
}

/* Whether a text is its own JSON, but for the quotes. */
static int is_unescaped(const char *text, Py_ssize_t length)
{
    for (Py_ssize_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == '"' || text[i] == '\\')
            return 0;
    return 1;
}

/* Fill the strides and the lengths of parts; how long the fragments are together, or -1. */
static Py_ssize_t measure(Column *columns, uint32_t *strides, Py_ssize_t count, Number seq, const Number *ts)
{
    Py_ssize_t whole = 0;
    for (Py_ssize_t i = 0; i < count; i++, count_up(&seq)) {
        Py_ssize_t stride = (Py_ssize_t)sizeof("{'$seq':,'$ts':,'data':},") - 1 + seq.length + ts->length;
        for (int field = 0; field < FIELDS; field++) {
            const char *bytes;
            Py_ssize_t length = 0;
            int found = item_of(&columns[field], field, i, &bytes, &length);
            if (found < 0 || (found && (field == TAG || field == NODE) && !is_unescaped(bytes, length)))
                return -1;
            if (found)
                length += columns[field].fixed;
            if (columns[field].len != NULL)
                columns[field].len[i] = (uint32_t)length;
            stride += length;
        }
        if ((whole += stride) > RENDERED_MAX)
            return -1;
        strides[i] = (uint32_t)stride;
    }
    return whole - 1;
}

static void write_fragments(Column *columns, char *to, Py_ssize_t count, Number seq, const Number *ts)
{
    for (Py_ssize_t i = 0; i < count; i++, count_up(&seq)) {
        const char *bytes;
        Py_ssize_t length;
        if (i > 0)
            *to++ = ',';
        to = put(PUT(to, "{\"$seq\":"), seq.digits, seq.length);
        to = put(PUT(to, ",\"$ts\":"), ts->digits, ts->length);
        if (item_of(&columns[NODE], NODE, i, &bytes, &length) > 0)
            to = PUT(put(PUT(to, ",\"$node\":\""), bytes, length), "\"");
        to = PUT(to, ",\"data\":");
        if (item_of(&columns[DATA], DATA, i, &bytes, &length) > 0)
            to = put(to, bytes, length);
        if (item_of(&columns[META], META, i, &bytes, &length) > 0)
            to = put(PUT(to, ",\"meta\":"), bytes, length);
        if (item_of(&columns[TAG], TAG, i, &bytes, &length) > 0)
            to = PUT(put(PUT(to, ",\"$tag\":\""), bytes, length), "\"");
        *to++ = '}';
    }
}

/* (datas, tags, nodes, metas, first_seq, ts) → (fragments, strides, lengths of nodes, metas and tags). */
static PyObject *render(PyObject *module, PyObject *const *args, Py_ssize_t arguments_count)
{
    Column columns[FIELDS] = {{0}};
    Number seq, ts;
    PyObject *strides = NULL, *fragments = NULL, *answer = NULL, *none = Py_None;
    if (arguments_count != 6 || !PyList_CheckExact(args[0]) || PyList_Size(args[0]) == 0 ||
        !read_number(args[4], &seq) || !read_number(args[5], &ts))
        return not_mine();
    Py_ssize_t count = PyList_Size(args[0]), whole;
    columns[TAG].fixed = sizeof(",'$tag':''") - 1;
    columns[NODE].fixed = sizeof("'$node':'',") - 1;
    columns[META].fixed = sizeof(",'meta':") - 1;
    for (int field = 0; field < FIELDS; field++) {
        if (args[field] == Py_None)
            continue;
        if (!PyList_CheckExact(args[field]) || PyList_Size(args[field]) != count)
            goto done;
        columns[field].list = args[field];
        if (field == DATA)
            continue;
        columns[field].lens = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
        if (columns[field].lens == NULL)
            goto done;
        columns[field].len = (uint32_t *)(void *)PyBytes_AsString(columns[field].lens);
    }
    strides = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    if (strides == NULL)
        goto done;
    whole = measure(columns, (uint32_t *)(void *)PyBytes_AsString(strides), count, seq, &ts);
    if (whole < 0 || (fragments = PyBytes_FromStringAndSize(NULL, whole)) == NULL)
        goto done;
    write_fragments(columns, PyBytes_AsString(fragments), count, seq, &ts);
    answer = PyTuple_Pack(5, fragments, strides, columns[NODE].lens ? columns[NODE].lens : none,
                          columns[META].lens ? columns[META].lens : none,
                          columns[TAG].lens ? columns[TAG].lens : none);
done:
    Py_XDECREF(fragments);
    Py_XDECREF(strides);
    for (int field = 0; field < FIELDS; field++)
        Py_XDECREF(columns[field].lens);
    return answer != NULL ? answer : not_mine();
}

static PyMethodDef METHODS[] = {
    {"write", (PyCFunction)(void (*)(void))scan_write, METH_FASTCALL, NULL},
    {"lines", (PyCFunction)(void (*)(void))scan_lines, METH_FASTCALL, NULL},
    {"member", (PyCFunction)(void (*)(void))scan_member, METH_FASTCALL, NULL},
    {"render", (PyCFunction)(void (*)(void))render, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_scan", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModule_Create(&MODULE);
}
