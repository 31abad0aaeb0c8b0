// rng.h - random numbers without a state: each is a function of (seed, stream ..., index).
//
// So a replay of a checkpoint segment, another split into micro-batches, another number of
// threads and a resumed run all draw the same numbers. The mixers are bijections of their index:
// 64 bit: the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014); 32 bit: two rounds of
// multiply and xor-shift, which vectorise.
#ifndef TAPE_RNG_H
#define TAPE_RNG_H

#include "tape/base.h"

// What a stream of numbers is for. Keys made for different uses never meet.
enum rng_use { RNG_INIT = 1, RNG_DROPOUT, RNG_BATCH, RNG_SAMPLE, RNG_CORPUS, RNG_TEST };

static inline uint64_t rng_mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Narrows a key by one more coordinate: rng_key(rng_key(rng_key(seed, RNG_DROPOUT), step), sample).
static inline uint64_t rng_key(uint64_t key, uint64_t coordinate)
{
    return rng_mix(key ^ rng_mix(coordinate));
}

static inline uint64_t rng_u64(uint64_t key, uint64_t index)
{
    return rng_key(key, index);
}

// 32 random bits; cheap enough for one call per activation.
static inline uint32_t rng_u32(uint64_t key, uint32_t index)
{
    uint32_t z = index * 0x9e3779b9u + (uint32_t)key;
    z = (z ^ (z >> 16)) * 0x7feb352du;
    z = (z ^ (z >> 15)) * 0x846ca68bu;
    z = (z ^ (z >> 16)) + (uint32_t)(key >> 32);
    z = (z ^ (z >> 15)) * 0x2c1b3c6du;
    z = (z ^ (z >> 12)) * 0x297a2d39u;
    return z ^ (z >> 15);
}

double rng_uniform(uint64_t key, uint64_t index);               // [0, 1)
double rng_normal(uint64_t key, uint64_t index);                // mean 0, deviation 1
int64_t rng_below(uint64_t key, uint64_t index, int64_t bound); // [0, bound), bound > 0

#endif
