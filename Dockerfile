# docker build -t s2sim . && docker run --rm s2sim run --topology fat-tree --workers 64
FROM python:3.11-slim
WORKDIR /build
COPY . .
RUN pip install --no-cache-dir . && rm -rf /build
RUN useradd --create-home s2sim
USER s2sim
WORKDIR /work
ENTRYPOINT ["s2sim"]
CMD ["--help"]
