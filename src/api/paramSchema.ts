import { z } from 'zod';

/** What a schema takes, without its saying that it may be left out. */
export function whenSent(schema: z.core.$ZodType | undefined): z.core.$ZodType | undefined {
  return schema instanceof z.ZodOptional || schema instanceof z.ZodDefault
    ? whenSent(schema.def.innerType)
    : schema;
}

/** The schema of what a name or an index stands for inside another; undefined where it says nothing. */
export function memberOf(
  schema: z.core.$ZodType | undefined,
  name: PropertyKey,
): z.core.$ZodType | undefined {
  const whole = whenSent(schema);
  if (whole instanceof z.ZodArray) return whenSent(whole.def.element);
  if (whole instanceof z.ZodRecord) return whenSent(whole.def.valueType);
  return whole instanceof z.ZodObject ? whenSent(whole.def.shape[String(name)]) : undefined;
}

/** Whether what a path leads to may be left out. */
export function isOptionalAt(schema: z.core.$ZodType | undefined, path: readonly PropertyKey[]) {
  const holder = path.slice(0, -1).reduce(memberOf, whenSent(schema));
  const member = holder instanceof z.ZodObject ? holder.def.shape[String(path.at(-1))] : undefined;
  return member !== whenSent(member);
}
