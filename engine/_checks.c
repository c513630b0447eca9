/* XXH3-64 of many fragments in one call, as the index of a segment has it for each: what `checks` in `segment/build.py`
 * says, which calls it by way of `scan.py` (docs/adr/0066-checks-of-rows-in-one-call.md). The interpreter's lock is let
 * go meanwhile.
 *
 * The hash is that of the xxHash specification (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), with
 * seed 0 and the secret that it gives.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers are read as they lie"
#endif

typedef const unsigned char *Bytes;

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 0x9E3779B185EBCA87u
#define PRIME64_2 0xC2B2AE3D27D4EB4Fu
#define PRIME64_3 0x165667B19E3779F9u
#define PRIME64_4 0x85EBCA77C2B2AE63u
#define PRIME64_5 0x27D4EB2F165667C5u
#define PRIME_MX1 0x165667919E3779F9u
#define PRIME_MX2 0x9FB21C651E98DF25u

#define STRIPE 64
#define LANES 8
/* Of the secret each stripe of a block begins 8 bytes further on, and the scramble at its end takes the last 64. */
#define BLOCK_STRIPES 16
#define BLOCK (STRIPE * BLOCK_STRIPES)

static const unsigned char SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline uint32_t read32(Bytes at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t read64(Bytes at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t rotated(uint64_t value, int by)
{
    return value << by | value >> (64 - by);
}

/* Both halves of a product, one over the other. */
static inline uint64_t folded(uint64_t one, uint64_t other)
{
    const unsigned __int128 product = (unsigned __int128)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t avalanche(uint64_t hash)
{
    hash = (hash ^ hash >> 37) * PRIME_MX1;
    return hash ^ hash >> 32;
}

static inline uint64_t avalanche64(uint64_t hash)
{
    hash = (hash ^ hash >> 33) * PRIME64_2;
    hash = (hash ^ hash >> 29) * PRIME64_3;
    return hash ^ hash >> 32;
}

/* Sixteen bytes. */
static inline uint64_t mixed(Bytes at, Bytes secret)
{
    return folded(read64(at) ^ read64(secret), read64(at + 8) ^ read64(secret + 8));
}

static uint64_t hash_to_16(Bytes at, size_t length)
{
    if (length > 8) {
        const uint64_t low = read64(at) ^ read64(SECRET + 24) ^ read64(SECRET + 32);
        const uint64_t high = read64(at + length - 8) ^ read64(SECRET + 40) ^ read64(SECRET + 48);
        return avalanche(length + __builtin_bswap64(low) + high + folded(low, high));
    }
    if (length > 3) {
        uint64_t hash = read32(at + length - 4) + ((uint64_t)read32(at) << 32);
        hash ^= read64(SECRET + 8) ^ read64(SECRET + 16);
        hash ^= rotated(hash, 49) ^ rotated(hash, 24);
        hash *= PRIME_MX2;
        hash = (hash ^ ((hash >> 35) + length)) * PRIME_MX2;
        return hash ^ hash >> 28;
    }
    if (length > 0) {
        const uint32_t ends = (uint32_t)at[0] << 16 | (uint32_t)at[length >> 1] << 24 | at[length - 1];
        const uint32_t bytes = ends | (uint32_t)length << 8;
        return avalanche64(bytes ^ (uint64_t)(read32(SECRET) ^ read32(SECRET + 4)));
    }
    return avalanche64(read64(SECRET + 56) ^ read64(SECRET + 64));
}

static uint64_t hash_to_128(Bytes at, size_t length)
{
    uint64_t hash = length * PRIME64_1;
    for (size_t pair = (length - 1) / 32 + 1; pair-- > 0;) {
        hash += mixed(at + 16 * pair, SECRET + 32 * pair);
        hash += mixed(at + length - 16 * (pair + 1), SECRET + 32 * pair + 16);
    }
    return avalanche(hash);
}

static uint64_t hash_to_240(Bytes at, size_t length)
{
    uint64_t hash = length * PRIME64_1;
    size_t part = 0;
    for (; part < 8; part++)
        hash += mixed(at + 16 * part, SECRET + 16 * part);
    hash = avalanche(hash);
    for (; part < length / 16; part++)
        hash += mixed(at + 16 * part, SECRET + 16 * (part - 8) + 3);
    return avalanche(hash + mixed(at + length - 16, SECRET + 136 - 17));
}

static inline void stripe(uint64_t lanes[LANES], Bytes at, Bytes secret)
{
    for (int lane = 0; lane < LANES; lane++) {
        const uint64_t value = read64(at + 8 * lane), key = value ^ read64(secret + 8 * lane);
        lanes[lane ^ 1] += value;
        lanes[lane] += (key & 0xFFFFFFFFu) * (key >> 32);
    }
}

static uint64_t hash_long(Bytes at, size_t length)
{
    uint64_t lanes[LANES] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    const Bytes last = at + length - STRIPE;
    size_t left = length;
    for (; left > BLOCK; at += BLOCK, left -= BLOCK) {
        for (int n = 0; n < BLOCK_STRIPES; n++)
            stripe(lanes, at + STRIPE * n, SECRET + 8 * n);
        for (int lane = 0; lane < LANES; lane++) {
            const uint64_t key = read64(SECRET + sizeof SECRET - STRIPE + 8 * lane);
            lanes[lane] = (lanes[lane] ^ lanes[lane] >> 47 ^ key) * PRIME32_1;
        }
    }
    for (size_t n = 0; n < (left - 1) / STRIPE; n++)
        stripe(lanes, at + STRIPE * n, SECRET + 8 * n);
    stripe(lanes, last, SECRET + sizeof SECRET - STRIPE - 7);
    uint64_t hash = length * PRIME64_1;
    for (int lane = 0; lane < LANES; lane += 2)
        hash += folded(lanes[lane] ^ read64(SECRET + 11 + 8 * lane), lanes[lane + 1] ^ read64(SECRET + 19 + 8 * lane));
    return avalanche(hash);
}

/* No answer, and no error: Python does it. */
static PyObject *not_mine(void)
{
    PyErr_Clear();
    Py_RETURN_NONE;
}

static uint64_t hash_of(Bytes at, size_t length)
{
    return length <= 16    ? hash_to_16(at, length)
           : length <= 128 ? hash_to_128(at, length)
           : length <= 240 ? hash_to_240(at, length)
                           : hash_long(at, length);
}

/* (data, strides) → the lower half of the hash of each fragment, which has one byte less than its stride (a comma is
 * behind it, but for the last), as bytes; strides are numbers of 32 bits. None where they are none of this data. */
static PyObject *checks(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer data, strides;
    (void)module;
    if (given != 2 || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return not_mine();
    if (PyObject_GetBuffer(args[1], &strides, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&data);
        return not_mine();
    }
    PyObject *answer = PyBytes_FromStringAndSize(NULL, strides.len);
    int fits = answer != NULL && strides.len % 4 == 0;
    if (fits) {
        const Bytes all = data.buf, lengths = strides.buf;
        char *to = PyBytes_AsString(answer);
        uint64_t begin = 0, end = (uint64_t)data.len + 1;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < strides.len && fits; at += 4) {
            const uint32_t stride = read32(lengths + at);
            fits = stride > 0 && stride <= end - begin;
            if (fits) {
                const uint32_t check = (uint32_t)hash_of(all + begin, stride - 1);
                memcpy(to + at, &check, sizeof check);
                begin += stride;
            }
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&strides);
    PyBuffer_Release(&data);
    if (fits)
        return answer;
    Py_XDECREF(answer);
    return not_mine();
}

static PyMethodDef METHODS[] = {
    {"checks", (PyCFunction)(void (*)(void))checks, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_checks", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__checks(void)
{
    return PyModule_Create(&MODULE);
}
