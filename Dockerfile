# One image for every process of Corridor; docker-compose.yml says which one a container runs.
FROM node:24.21.0-slim@sha256:2fe369e969550cde8e867afc3fe370b260140cab4a23d467074295b42163d553 AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# No package's own script runs, neither here nor in production: none is needed.
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY src ./src
COPY sandbox ./sandbox
COPY tools/bundleCli.mjs tools/renderer.mjs ./tools/
# Compiles, and bundles the workflows and the commands, so that no process does it at its start.
RUN npm run build

FROM node:24.21.0-slim@sha256:2fe369e969550cde8e867afc3fe370b260140cab4a23d467074295b42163d553 AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The image has a Node of its own: the one that npm brings to machines with an older one goes.
RUN npm ci --ignore-scripts --omit=dev && rm -rf node_modules/node-linux-* node_modules/.bin/node

FROM node:24.21.0-slim@sha256:2fe369e969550cde8e867afc3fe370b260140cab4a23d467074295b42163d553
ENV NODE_ENV=production
WORKDIR /app
# A named volume that is mounted here takes over the owner.
RUN install --directory --owner=node --group=node /var/lib/corridor
COPY package.json ./
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
# By its number, so that Kubernetes can see that it is not root.
USER 1000
