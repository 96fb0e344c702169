// Shows the document of the version that the page was asked for.
SwaggerUIBundle({
  url: `/openapi.json${location.search}`,
  dom_id: '#reference',
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
