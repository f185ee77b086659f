/* The packet of in-network aggregation, for the hosts, the user-space aggregator and the eBPF program alike.
   Normative text: docs/formats/aggregation.md. Little-endian; one packet is one UDP datagram. */
#ifndef LACONIC_PACKET_H
#define LACONIC_PACKET_H

#define PACKET_MAGIC 0x4c /* 'L' */
#define PACKET_VERSION 1

#define PACKET_SUM 1
#define PACKET_OR 2

/* Flags of an answer; a contribution has none. */
#define PACKET_RESULT 1      /* all workers are in: values follow */
#define PACKET_PENDING 2     /* some are not: no values, `workers` says who is in */
#define PACKET_OVERFLOW 4    /* with RESULT: a sum does not fit in int32 */
#define PACKET_OUT_OF_STEP 8 /* with PENDING: workers disagree on round, operation or length of the block */
#define PACKET_REPEATED 16   /* answers one worker that asked again; otherwise all workers are told */

#define PACKET_VALUES 362 /* header and values fill an IPv4 datagram of 1500 bytes */
#define PACKET_WORKERS 32
#define PACKET_WINDOW 256             /* a worker sends block b when it has the result of block b - 256 */
#define PACKET_POOL (2 * PACKET_WINDOW) /* entries of a job at the aggregator; block b has entry b mod 512 */
#define PACKET_PORT 9917

struct packet_header {
  unsigned char magic;
  unsigned char version;
  unsigned char operation;
  unsigned char flags;
  unsigned int workers; /* bit w: worker w is in these values; in a contribution exactly one */
  unsigned long long job;
  unsigned int round; /* operations since the job began */
  unsigned int block; /* blocks since the job began, modulo 2^32 */
};

/* What an aggregator counts, in the order of its counters. */
#define PACKET_COUNTERS 8
#define COUNT_PACKETS 0
#define COUNT_MALFORMED 1
#define COUNT_UNKNOWN_JOBS 2
#define COUNT_STALE 3
#define COUNT_REPEATED 4
#define COUNT_OUT_OF_STEP 5
#define COUNT_RESULTS 6
#define COUNT_UNSENT 7

#endif
