import { z } from 'zod';

/** Returns the schema of a value that was sent: without the wrappers that make it optional. */
export function whenSent(schema: z.core.$ZodType | undefined): z.core.$ZodType | undefined {
  return schema instanceof z.ZodOptional || schema instanceof z.ZodDefault
    ? whenSent(schema.def.innerType)
    : schema;
}

/** Returns the schema of the member with a name or index, or undefined if the schema does not define one. */
export function memberOf(
  schema: z.core.$ZodType | undefined,
  name: PropertyKey,
): z.core.$ZodType | undefined {
  const whole = whenSent(schema);
  if (whole instanceof z.ZodArray) return whenSent(whole.def.element);
  if (whole instanceof z.ZodRecord) return whenSent(whole.def.valueType);
  return whole instanceof z.ZodObject ? whenSent(whole.def.shape[String(name)]) : undefined;
}

/** Whether the parameter at a path may be left out. */
export function isOptionalAt(schema: z.core.$ZodType | undefined, path: readonly PropertyKey[]) {
  const holder = path.slice(0, -1).reduce(memberOf, whenSent(schema));
  const member = holder instanceof z.ZodObject ? holder.def.shape[String(path.at(-1))] : undefined;
  return member !== whenSent(member);
}
