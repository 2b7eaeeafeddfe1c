// Stands for packages of the user interface, which no test draws: every export is a function that returns itself.
const anything = new Proxy(function () {}, {
  get: (_, key) => (key === 'then' ? undefined : key === Symbol.toPrimitive ? () => '' : anything),
  apply: () => anything,
  construct: () => anything,
});
module.exports = Object.create(anything);
