/* What reads, over a copy that ends where the text ends: an object of bytes has a zero more, which hides a byte read too
 * much. For the fuzzer (fuzz.py); it is compiled together with the C file that it looks into. */
#define PyInit__scan PyInit_not_this
#include SCANNED
#undef PyInit__scan
#include <stdlib.h>

typedef int (*Reader)(Text at, Text end, int depth);

static int read_write(Text at, Text end, int depth)
{
    Columns columns = {.most = 1000};
    Text begin = NULL, finish = NULL;
    int rest = 0;
    int found = write_end(at, end, depth, &columns, &begin, &finish, &rest) != NULL;
    drop(&columns);
    return found;
}

static int read_line(Text at, Text end, int depth)
{
    return value_end(skip_space(at, end), end, depth) != NULL;
}

static int read_member(Text at, Text end, int depth)
{
    Text key, value, finish;
    Py_ssize_t length;
    int more;
    return member_end(at, end, depth, &key, &length, &value, &finish, &more) != NULL;
}

static PyObject *exactly(PyObject *const *args, Py_ssize_t count, Reader reader)
{
    Text at, end;
    int depth;
    Py_ssize_t most;
    if (!arguments(args, count, &at, &end, &depth, &most))
        return not_mine();
    size_t length = (size_t)(end - at);
    unsigned char *copy = malloc(length ? length : 1);
    if (copy == NULL)
        return PyErr_NoMemory();
    memcpy(copy, at, length);
    int found = reader(copy, copy + length, depth);
    free(copy);
    PyErr_Clear();
    return PyBool_FromLong(found);
}

static PyObject *exact_write(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return exactly(args, count, read_write);
}

static PyObject *exact_lines(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return exactly(args, count, read_line);
}

static PyObject *exact_member(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return exactly(args, count, read_member);
}

static PyMethodDef EXACT[] = {
    {"write", (PyCFunction)(void (*)(void))exact_write, METH_FASTCALL, NULL},
    {"lines", (PyCFunction)(void (*)(void))exact_lines, METH_FASTCALL, NULL},
    {"member", (PyCFunction)(void (*)(void))exact_member, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef EXACTLY = {PyModuleDef_HEAD_INIT, "_exact", NULL, 0, EXACT, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__exact(void)
{
    return PyModule_Create(&EXACTLY);
}
