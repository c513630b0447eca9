/* The same bytes into many sockets, without a step in Python for each: what `straight.py` says, which is the only one
 * that imports it (docs/adr/0064-straight-into-sockets.md).
 *
 * The interpreter's lock is let go once for all of them. Nothing of Python is touched meanwhile: the caller holds the
 * bytes, and nothing else closes descriptors of connections than the loop, which is what calls.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

/* What one call may be asked for: more than anybody asks. */
#define SOCKETS_MAX 256
#define GONE (-1)

static PyObject *write_all(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    int sockets[SOCKETS_MAX];
    Py_ssize_t taken[SOCKETS_MAX], count, size, many = 0;
    char *data;
    PyObject *answer;

    (void)self;
    if (given != 2 || !PyList_Check(args[0]) || PyBytes_AsStringAndSize(args[1], &data, &size) < 0) {
        PyErr_SetString(PyExc_TypeError, "write_all takes a list of descriptors, and bytes");
        return NULL;
    }
    count = PyList_Size(args[0]);
    if (count > SOCKETS_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many descriptors for one call");
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        const long descriptor = PyLong_AsLong(PyList_GetItem(args[0], index));
        if (descriptor < 0 || descriptor > INT_MAX) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "this is no descriptor");
            return NULL;
        }
        sockets[index] = (int)descriptor;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t index = 0; index < count; index++) {
        taken[index] = send(sockets[index], data, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (taken[index] < 0)
            taken[index] = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : GONE;
        many += taken[index] != size;
    }
    Py_END_ALLOW_THREADS
    answer = PyList_New(0);
    for (Py_ssize_t index = 0; many && answer != NULL && index < count; index++) {
        PyObject *one;
        int failed;
        if (taken[index] == size)
            continue;
        one = Py_BuildValue("(nn)", index, taken[index]);
        failed = one == NULL || PyList_Append(answer, one) < 0;
        Py_XDECREF(one);
        if (failed)
            Py_CLEAR(answer);
    }
    return answer;
}

static PyMethodDef METHODS[] = {
    {"write_all", (PyCFunction)(void (*)(void))write_all, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_straight", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__straight(void)
{
    return PyModule_Create(&MODULE);
}
