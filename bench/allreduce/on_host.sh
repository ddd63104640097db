#!/bin/sh
# What mpirun calls instead of ssh in `thalweg bench allreduce --netns`: ADDRESS COMMAND…
# THALWEG_BENCH_HOSTS is a folder with a link for every address, to the host's network namespace.
host=$1
shift
exec nsenter --net="$THALWEG_BENCH_HOSTS/$host" sh -c "$*"
