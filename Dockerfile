# fedray with the packages that its tests passed with, on the image of the Ray that it is tested with:
#   docker build --tag fedray .                              # without espeak-ng
#   docker build --build-arg EXTRAS=synth --tag fedray .     # with the embedded corpus; espeak-ng is GPL-3.0-or-later
# Python and Ray are the same in every process of a cluster, so the base image follows constraints.txt.
FROM rayproject/ray:2.60.0-py311
ARG EXTRAS=""
COPY --chown=ray . /home/ray/fedray
RUN pip install --no-cache-dir --constraint /home/ray/fedray/constraints.txt "/home/ray/fedray${EXTRAS:+[$EXTRAS]}"
