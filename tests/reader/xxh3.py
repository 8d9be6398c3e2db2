"""XXH3 in plain Python: 64 bits with a seed, and 128 bits."""
import struct

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MX1, MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
STRIPE, STRIPES_IN_BLOCK = 64, 16


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def rotated(value, by):
    return (value << by | value >> (64 - by)) & M64


def swapped(value, size):
    return int.from_bytes(value.to_bytes(size, "little"), "big")


def folded(a, b):
    product = (a & M64) * (b & M64)
    return (product & M64) ^ (product >> 64)


def avalanche(value):
    value = (value ^ value >> 37) * MX1 & M64
    return value ^ value >> 32


def avalanche_xxh64(value):
    value = (value ^ value >> 33) * P64_2 & M64
    value = (value ^ value >> 29) * P64_3 & M64
    return value ^ value >> 32


def mix16(data, at, secret, secret_at, seed):
    return folded(u64(data, at) ^ (u64(secret, secret_at) + seed) & M64,
                  u64(data, at + 8) ^ (u64(secret, secret_at + 8) - seed) & M64)


def combined(data):
    n = len(data)
    return data[n - 1] | n << 8 | data[0] << 16 | data[n >> 1] << 24


def wide_seed(seed):
    return seed ^ swapped(seed & M32, 4) << 32


def accumulators(data, seed):
    """The eight sums over an input of more than 240 bytes, and the secret used."""
    secret = SECRET
    if seed:
        secret = b"".join(
            struct.pack("<QQ", (u64(SECRET, at) + seed) & M64, (u64(SECRET, at + 8) - seed) & M64)
            for at in range(0, len(SECRET), 16))
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]

    def add(at, secret_at):
        for lane in range(8):
            value = u64(data, at + 8 * lane)
            key = value ^ u64(secret, secret_at + 8 * lane)
            acc[lane ^ 1] = (acc[lane ^ 1] + value) & M64
            acc[lane] = (acc[lane] + (key & M32) * (key >> 32)) & M64

    # The last stripe is taken from the end, so the one before it may not reach there.
    stripes = (len(data) - 1) // STRIPE
    for stripe in range(stripes):
        within = stripe % STRIPES_IN_BLOCK
        add(stripe * STRIPE, 8 * within)
        if within == STRIPES_IN_BLOCK - 1:
            for lane in range(8):
                value = acc[lane] ^ acc[lane] >> 47 ^ u64(secret, len(secret) - 64 + 8 * lane)
                acc[lane] = value * P32_1 & M64
    add(len(data) - STRIPE, len(secret) - STRIPE - 7)
    return acc, secret


def merged(acc, secret, secret_at, start):
    for pair in range(4):
        start += folded(acc[2 * pair] ^ u64(secret, secret_at + 16 * pair),
                        acc[2 * pair + 1] ^ u64(secret, secret_at + 16 * pair + 8))
    return avalanche(start & M64)


def xxh3_64(data, seed=0):
    n = len(data)
    if n == 0:
        return avalanche_xxh64(seed ^ u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        return avalanche_xxh64(((u32(SECRET, 0) ^ u32(SECRET, 4)) + seed) & M64 ^ combined(data))
    if n <= 8:
        flip = ((u64(SECRET, 8) ^ u64(SECRET, 16)) - wide_seed(seed)) & M64
        value = flip ^ (u32(data, n - 4) | u32(data, 0) << 32)
        value ^= rotated(value, 49) ^ rotated(value, 24)
        value = value * MX2 & M64
        value = (value ^ (value >> 35) + n) * MX2 & M64
        return value ^ value >> 28
    if n <= 16:
        low = ((u64(SECRET, 24) ^ u64(SECRET, 32)) + seed) & M64 ^ u64(data, 0)
        high = ((u64(SECRET, 40) ^ u64(SECRET, 48)) - seed) & M64 ^ u64(data, n - 8)
        return avalanche((n + swapped(low, 8) + high + folded(low, high)) & M64)
    if n <= 128:
        total = n * P64_1
        for i in range((n - 1) // 32 + 1):
            total += mix16(data, 16 * i, SECRET, 32 * i, seed)
            total += mix16(data, n - 16 * i - 16, SECRET, 32 * i + 16, seed)
        return avalanche(total & M64)
    if n <= 240:
        total = n * P64_1
        for i in range(8):
            total += mix16(data, 16 * i, SECRET, 16 * i, seed)
        total = avalanche(total & M64)
        for i in range(8, n // 16):
            total += mix16(data, 16 * i, SECRET, 16 * (i - 8) + 3, seed)
        total += mix16(data, n - 16, SECRET, 136 - 17, seed)
        return avalanche(total & M64)
    acc, secret = accumulators(data, seed)
    return merged(acc, secret, 11, n * P64_1)


def xxh3_128(data):
    """The hash with seed 0, as a number of 128 bits."""
    low, high = halves(data)
    return high << 64 | low


def halves(data):
    n = len(data)
    if n == 0:
        return (avalanche_xxh64(u64(SECRET, 64) ^ u64(SECRET, 72)),
                avalanche_xxh64(u64(SECRET, 80) ^ u64(SECRET, 88)))
    if n <= 3:
        low = combined(data)
        high = swapped(low, 4)
        high = (high << 13 | high >> 19) & M32
        return (avalanche_xxh64(u32(SECRET, 0) ^ u32(SECRET, 4) ^ low),
                avalanche_xxh64(u32(SECRET, 8) ^ u32(SECRET, 12) ^ high))
    if n <= 8:
        keyed = (u32(data, 0) | u32(data, n - 4) << 32) ^ u64(SECRET, 16) ^ u64(SECRET, 24)
        product = keyed * (P64_1 + (n << 2) & M64)
        low, high = product & M64, product >> 64
        high = (high + (low << 1)) & M64
        low ^= high >> 3
        low = (low ^ low >> 35) * MX2 & M64
        return low ^ low >> 28, avalanche(high)
    if n <= 16:
        first, last = u64(data, 0), u64(data, n - 8)
        product = (first ^ last ^ u64(SECRET, 32) ^ u64(SECRET, 40)) * P64_1
        low, high = product & M64, product >> 64
        low = (low + (n - 1 << 54)) & M64
        last ^= u64(SECRET, 48) ^ u64(SECRET, 56)
        high = (high + last + (last & M32) * (P32_2 - 1)) & M64
        low ^= swapped(high, 8)
        product = low * P64_2
        return avalanche(product & M64), avalanche((product >> 64) + high * P64_2 & M64)
    if n <= 240:
        return middle(data)
    acc, secret = accumulators(data, 0)
    return (merged(acc, secret, 11, n * P64_1),
            merged(acc, secret, len(secret) - 64 - 11, ~(n * P64_2) & M64))


def middle(data):
    n = len(data)
    low, high = n * P64_1 & M64, 0

    def mix32(a, b, secret_at):
        nonlocal low, high
        low = (low + mix16(data, a, SECRET, secret_at, 0)) & M64
        low ^= (u64(data, b) + u64(data, b + 8)) & M64
        high = (high + mix16(data, b, SECRET, secret_at + 16, 0)) & M64
        high ^= (u64(data, a) + u64(data, a + 8)) & M64

    if n <= 128:
        for i in reversed(range((n - 1) // 32 + 1)):
            mix32(16 * i, n - 16 * i - 16, 32 * i)
    else:
        for i in range(4):
            mix32(32 * i, 32 * i + 16, 32 * i)
        low, high = avalanche(low), avalanche(high)
        for i in range(4, n // 32):
            mix32(32 * i, 32 * i + 16, 3 + 32 * (i - 4))
        mix32(n - 16, n - 32, 136 - 17 - 16)
    return (avalanche(low + high & M64),
            -avalanche(low * P64_1 + high * P64_4 + n * P64_2 & M64) & M64)


def digest(data):
    """XXH3-128 as 32 hex digits, most significant first."""
    return "%032x" % xxh3_128(data)


def self_test():
    # The published hashes of nothing.
    assert xxh3_64(b"") == 0x2D06800538D394C2
    assert xxh3_128(b"") == 0x99AA06D3014798D86001C324468D497F


self_test()
